// Full disks on one node, at the start or during a run. A restart would find the disk still full, so launch names it
// and ends. The same command resumes once there is room.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "tests/cluster/cluster.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct FullDisk : ClusterRun {
  // Mounts a file system that only this node sees on a folder of the run.
  static void give_disk(const Cluster& cluster, const std::string& node, const std::string& folder,
                        const std::string& size) {
    std::filesystem::create_directories(folder);
    cluster.at(node, "mount -t tmpfs -o size=" + size + " tmpfs " + folder);
  }
  static auto at_step(int step) {
    return [step](const std::string&, const std::string& errors) { return is_at_step(errors, step); };
  }
  std::vector<std::string> nvme() const { return {"zero.optimizer=nvme", "memory.nvme=[\"" + file("drive") + "\"]"}; }
};

// The nvme tier reserves all of its space at the start.
TEST_F(FullDisk, IsReportedAtTheStartWithRankAndFolder) {
  const Cluster cluster(2);
  give_disk(cluster, "n2", file("drive"), "1m");
  std::vector<std::string> sets = nvme();
  sets.emplace_back("model.config.n_embd=256");
  const Outcome outcome = run(cluster.in("n1", launch({"--hosts", "n1,n2"}, sets)), 180);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::does_not_fit)) << outcome.all();
  EXPECT_THAT(last_line(outcome.errors), AllOf(StartsWith("strata: rank 1 on n2: "), HasSubstr(file("drive"))))
      << outcome.all();
  EXPECT_THAT(outcome.errors, Not(HasSubstr("starts again")));
}

// Somebody else fills the drive during the run, but the run needs no more space on it.
TEST_F(FullDisk, InTheNvmeFolderInMidRunHasNoEffect) {
  std::filesystem::create_directories(file("drive"));
  const std::string bits = untouched(nvme());
  const Cluster cluster(2);
  give_disk(cluster, "n2", file("drive"), "8m");
  Running running(cluster.in("n1", launch({"--hosts", "n1,n2", "--no-preflight"}, nvme())));
  ASSERT_TRUE(running.wait_until(at_step(30), 120));
  EXPECT_THAT(cluster.at("n2", "cat /dev/zero 2>&1 >" + file("drive") + "/other || true").output,
              HasSubstr("No space left"));
  const Outcome outcome = running.wait(300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, Not(HasSubstr("starts again")));
  EXPECT_EQ(weights_hash(), bits);
}

// During the run, the disk to which one node writes its part of a checkpoint fills up. Earlier checkpoints stay, and
// the same command continues to the bits of an undisturbed run.
TEST_F(FullDisk, InTheCheckpointFolderEndsTheRunWithoutARestart) {
  const std::string bits = untouched();
  const Cluster cluster(2);
  const std::vector<std::string> command = cluster.in("n1", launch({"--hosts", "n1,n2", "--no-preflight"}));
  Running running(command);
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  give_disk(cluster, "n2", file("checkpoints"), "16k");
  const auto filled = std::chrono::steady_clock::now();
  const Outcome outcome = running.wait(180);
  // 20 steps to the next checkpoint, and the ranks end within seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - filled, std::chrono::seconds(90));
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::does_not_fit)) << outcome.all();
  EXPECT_THAT(last_line(outcome.errors),
              AllOf(StartsWith("strata: rank 1 on n2: " + file("checkpoints") + "/step-"),
                    HasSubstr("rank-00001-of-00002.safetensors cannot be written at offset "),
                    HasSubstr("No space left on device (errno 28): free some space there, or choose a folder")))
      << outcome.all();
  EXPECT_THAT(outcome.errors, Not(HasSubstr("starts again")));
  EXPECT_THAT(events(), AllOf(HasSubstr(R"("exit":3,"cause":"rank 1 on n2: )"), Not(HasSubstr("restart"))));
  cluster.at("n2", "umount " + file("checkpoints"));
  const Outcome again = run(command, 300);
  EXPECT_EQ(again.code, 0) << again.all();
  EXPECT_THAT(again.errors, HasSubstr("resumes after step "));
  EXPECT_EQ(weights_hash(), bits);
}

}  // namespace
}  // namespace strata::tests
