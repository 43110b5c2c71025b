// Ranks are alive but do nothing. They are named, and the run ends. Under launch it continues to the bits of an
// undisturbed run.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cluster/cluster.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct StandingRank : ClusterRun {
  // Limits short enough for a test.
  static std::vector<std::string> watched(std::vector<std::string> sets = {}) {
    sets.insert(sets.end(), {"control.warn_after=6", "control.stuck_after=12"});
    return sets;
  }
  static auto at_step(int step) {
    return [step](const std::string&, const std::string& errors) { return is_at_step(errors, step); };
  }
  std::string states() const {
    return run({"sh", "-c", "cat " + file("checkpoints") + "/state-of-ranks-*.txt"}).output;
  }
};

TEST_F(StandingRank, AStoppedRankIsNamedAndRestarted) {
  const std::string bits = untouched();
  const Cluster cluster(3);
  Running running(cluster.in("n1", launch({"--hosts", "n1:2,n2:2,n3:2", "--no-preflight"}, watched())));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  signal_rank(cluster, "n2", 3, "STOP");
  const Outcome outcome = running.wait(240);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("rank 3 on n2 has been in '"),
                                    HasSubstr("(its process does not run); 5 ranks wait for it\n"),
                                    HasSubstr("5 ranks wait for it; the run ends, and the state of all ranks is in "),
                                    HasSubstr("restart 1 of 3: 6 ranks on n1 (2), n2 (2), n3 (2)")));
  EXPECT_THAT(states(), AllOf(HasSubstr("rank 3 on n2"), HasSubstr("Executor::step")));
  EXPECT_EQ(weights_hash(), bits);
}

TEST_F(StandingRank, UnderBareMpirunAStoppedRankIsNamedAndAllRanksEnd) {
  const Cluster cluster(3);
  Running running(cluster.in("n1", mpirun(watched())));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  signal_rank(cluster, "n2", 3, "STOP");
  const Outcome outcome = running.wait(120);
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("rank 3 on n2 has been in '"), HasSubstr("(its process does not run)"),
                                    HasSubstr("the run ends, and the state of all ranks is in ")));
  EXPECT_THAT(states(), HasSubstr("rank 3 on n2"));
  for (const char* node : {"n1", "n2", "n3"}) EXPECT_EQ(ranks_left(cluster, node), 0) << node;
}

// A drive of one node that can be frozen. It then completes no write, and the rank cannot even be killed.
class HangingDrive {
 public:
  HangingDrive(const Cluster& cluster, std::string node, std::string folder)
      : cluster_(cluster), node_(std::move(node)), folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    cluster_.at(node_, "truncate -s 64M " + folder_ + ".img; mkfs.ext4 -q " + folder_ + ".img; mount -o loop " +
                           folder_ + ".img " + folder_);
  }
  ~HangingDrive() {
    if (hangs_) cluster_.at(node_, "fsfreeze -u " + folder_);
  }
  HangingDrive(const HangingDrive&) = delete;
  HangingDrive& operator=(const HangingDrive&) = delete;
  void hang() {
    cluster_.at(node_, "fsfreeze -f " + folder_);
    hangs_ = true;
  }
  static bool is_possible(const ScratchFolder& folder) {
    const std::string image = (folder.path() / "probe").string();
    return run({"sh", "-ec",
                "truncate -s 8M " + image + "; mkfs.ext4 -q " + image + "; unshare --mount sh -ec 'mount " +
                    "-o loop " + image + " /mnt; command -v fsfreeze'"})
               .code == 0;
  }

 private:
  const Cluster& cluster_;
  std::string node_, folder_;
  bool hangs_ = false;
};

TEST_F(StandingRank, RanksContinueAfterADriveHangs) {
  if (!HangingDrive::is_possible(run_.folder())) GTEST_SKIP() << "this system mounts no loop devices with ext4";
  const std::vector<std::string> sets = watched({"zero.optimizer=nvme", "memory.nvme=[\"" + file("drive") + "\"]"});
  std::filesystem::create_directories(file("drive"));
  const std::string bits = untouched(sets);
  const Cluster cluster(3);
  HangingDrive drive(cluster, "n3", file("drive"));
  Running running(cluster.in("n1", launch({"--hosts", "n1:2,n2:2,n3:2", "--no-preflight"}, sets)));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  drive.hang();
  const Outcome outcome = running.wait(240);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr(" on n3 has been in '"), HasSubstr("; the run ends, and the state of all ranks is in "),
                    HasSubstr("left out: a rank on n3 cannot be ended, because it waits for a device"),
                    HasSubstr("restart 1 of 3: 4 ranks on n1 (2), n2 (2)")));
  EXPECT_THAT(events(), HasSubstr(R"("event":"node_held","nodes":["n3"])"));
  EXPECT_EQ(weights_hash(), bits);
}

// mpirun itself waits for the rank that cannot end.
TEST_F(StandingRank, UnderBareMpirunRanksEndAfterADriveHangs) {
  if (!HangingDrive::is_possible(run_.folder())) GTEST_SKIP() << "this system mounts no loop devices with ext4";
  const Cluster cluster(3);
  HangingDrive drive(cluster, "n3", file("drive"));
  Running running(
      cluster.in("n1", mpirun(watched({"zero.optimizer=nvme", "memory.nvme=[\"" + file("drive") + "\"]"}))));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  drive.hang();
  EXPECT_TRUE(running.wait_until(
      [](const auto&, const std::string& errors) {
        const std::size_t end = errors.find("; the run ends, and the state of all ranks is in ");
        return end != errors.npos && errors.rfind(" on n3 has been in '", end) != errors.npos;
      },
      90));
  for (const char* node : {"n1", "n2"}) EXPECT_EQ(ranks_left(cluster, node), 0) << node;
}

}  // namespace
}  // namespace strata::tests
