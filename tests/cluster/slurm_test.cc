// A real Slurm: slurmctld on the first node, slurmd on all.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "tests/cluster/cluster.h"
#include "tests/source_dir.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

const std::string kBatch = source_dir() / "launcher/slurm/train.sbatch";

struct Slurm : ClusterRun {
  void SetUp() override {
    if (const std::string why = Cluster::why_not(true); !why.empty()) GTEST_SKIP() << why;
  }
  // Waits until the shell command `text` on n1 prints the wanted output.
  static bool comes(const Cluster& cluster, const std::string& shell_text, const std::string& wanted, double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
      if (cluster.at("n1", shell_text + " || true").output.find(wanted) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    return false;
  }
  // The arguments of strata train, quoted for a shell, without the program and the command.
  std::string keys(const std::vector<std::string>& sets) const {
    std::string out;
    const std::vector<std::string> words = train(sets);
    for (std::size_t i = 2; i < words.size(); ++i) out += " '" + words[i] + "'";
    return out;
  }
};

// The batch file that users start from. Before its time is over, the job stops with a checkpoint and is requeued. It
// ends with the bits of a run that was not stopped.
TEST_F(Slurm, ARequeuedJobContinuesToTheSameBits) {
  const std::vector<std::string> sets = {"training.max_steps=400"};
  const std::string bits = untouched(sets);
  const Cluster cluster(2, true);
  ASSERT_TRUE(comes(cluster, "sinfo -h -o %T", "idle", 60));
  // Slurm's shortest time limit is a minute, and it may act up to a minute late. A signal has the same effect on the
  // job.
  cluster.at("n1", "cd " + run_.folder().path().string() + " && STRATA_PROGRAM=" + kStrata + " sbatch -o job.log " +
                       kBatch + keys(sets));
  ASSERT_TRUE(comes(cluster, "cat " + file("job.log"), "step 60/400", 120)) << run_.folder().read("job.log");
  cluster.at("n1", "scancel --batch --signal=USR1 1");
  EXPECT_TRUE(comes(cluster, "cat " + file("job.log"), "done after step 400", 240));
  EXPECT_TRUE(comes(cluster, "scontrol show job 1", "JobState=COMPLETED", 60));
  const std::string log = run_.folder().read("job.log");
  EXPECT_THAT(log,
              AllOf(HasSubstr("of Slurm job 1, started by srun"), HasSubstr("stopped on request after step "),
                    HasSubstr("requeueing the job"), HasSubstr("resumes after step "), Not(HasSubstr("srun: error"))));
  EXPECT_EQ(weights_hash(), bits);
}

// scancel ends both ranks and agents. Ranks have KillWait for their checkpoint, and no node counts as lost. The job
// inherits no environment, as on some sites.
TEST_F(Slurm, ACancelledJobCountsAsStoppedOnRequest) {
  const Cluster cluster(2, true);
  ASSERT_TRUE(comes(cluster, "sinfo -h -o %T", "idle", 60));
  cluster.at("n1", "cd " + run_.folder().path().string() + " && sbatch --export=STRATA_RUNS=runs,STRATA_PROGRAM=" +
                       kStrata + " -o job.log " + kBatch + keys({"training.max_steps=100000"}));
  ASSERT_TRUE(comes(cluster, "cat " + file("job.log"), "step 60/100000", 120)) << run_.folder().read("job.log");
  // This rank needs more time than launch gives to ranks that must end.
  signal_rank(cluster, "n2", 3, "STOP");
  cluster.at("n1", "scancel 1");
  std::this_thread::sleep_for(std::chrono::seconds(12));
  signal_rank(cluster, "n2", 3, "CONT");
  EXPECT_TRUE(comes(cluster, "cat " + file("runs/strata-1/logs/events.jsonl"), "\"event\":\"end\"", 90));
  EXPECT_THAT(run_.folder().read("job.log"),
              AllOf(HasSubstr("stopped on request after step "), Not(HasSubstr("lost"))));
  EXPECT_THAT(run_.folder().read("runs/strata-1/logs/events.jsonl"),
              AllOf(HasSubstr("\"exit\":75,\"cause\":\"stopped on request"), Not(HasSubstr("node_lost"))));
  const std::string log = run_.folder().read("job.log");
  const std::string step = log.substr(log.rfind("stopped on request after step ") + 30);
  EXPECT_TRUE(std::filesystem::exists(file(fmt::format("checkpoints/step-{:08}", std::stoi(step)))))
      << "the checkpoint of step " << step;
}

// Elements of an array do not share folders.
TEST_F(Slurm, ArrayElementsHaveSeparateFolders) {
  const Cluster cluster(2, true);
  ASSERT_TRUE(comes(cluster, "sinfo -h -o %T", "idle", 60));
  cluster.at("n1", "cd " + run_.folder().path().string() + " && STRATA_RUNS=runs STRATA_PROGRAM=" + kStrata +
                       " sbatch --array=1-2 -N1 --ntasks-per-node=1 "
                       "-o job-%a.log " +
                       kBatch + keys({"training.max_steps=20", "report.summary=/dev/null"}));
  for (const char* element : {"1", "2"}) {
    EXPECT_TRUE(
        comes(cluster, std::string("cat ") + file(std::string("job-") + element + ".log"), "done after step 20", 180));
    EXPECT_TRUE(std::filesystem::exists(file(std::string("runs/strata-1/") + element + "/checkpoints/step-00000020")));
    EXPECT_TRUE(std::filesystem::exists(file(std::string("runs/strata-1/") + element + "/logs/events.jsonl")));
    EXPECT_THAT(run_.folder().read(std::string("job-") + element + ".log"),
                HasSubstr(std::string("training.seed = ") + element + "\n"));
  }
}

// An administrator takes a node away: the run continues on the others.
TEST_F(Slurm, ARemovedNode) {
  const std::vector<std::string> sets = {"training.max_steps=600"};
  const std::string bits = untouched(sets);
  const Cluster cluster(3, true);
  ASSERT_TRUE(comes(cluster, "sinfo -h -o %T", "idle", 60));
  cluster.at("n1", "cd " + run_.folder().path().string() + " && STRATA_PROGRAM=" + kStrata + " sbatch -N3 -o job.log " +
                       kBatch + keys(sets));
  ASSERT_TRUE(comes(cluster, "cat " + file("job.log"), "step 60/600", 120)) << run_.folder().read("job.log");
  // A drained node finishes what runs there.
  cluster.at("n1", "scontrol update nodename=n3 state=drain reason=test");
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_THAT(run_.folder().read("job.log"), Not(HasSubstr("lost")));
  cluster.kill("n3");
  EXPECT_TRUE(comes(cluster, "cat " + file("job.log"), "done after step 600", 240)) << run_.folder().read("job.log");
  EXPECT_THAT(run_.folder().read("job.log"),
              AllOf(HasSubstr("node n3 (ranks 4 to 5) is lost"), HasSubstr("4 ranks on n1 (2), n2 (2)")));
  EXPECT_EQ(weights_hash(), bits);
}

// A node that dies between allocation and start ends the job, or is left out if STRATA_LAUNCH_OPTIONS says so.
TEST_F(Slurm, ANodeThatDiesBeforeTheStart) {
  const Cluster cluster(3, true);
  ASSERT_TRUE(comes(cluster, "sinfo -h -o %T", "idle", 60));
  const std::string batch = kBatch + keys({"training.max_steps=30"});
  // This is the batch file itself, held back until the node is gone.
  run_.folder().write("held.sbatch", "#!/bin/bash\ntouch begun\nuntil [ -e go ]; do sleep 0.2; done\nbash " + batch +
                                         "\necho without: $?\nSTRATA_LAUNCH_OPTIONS='--min-nodes 2' bash " + batch +
                                         "\necho with: $?\n");
  cluster.at("n1", "cd " + run_.folder().path().string() + " && STRATA_PROGRAM=" + kStrata +
                       " sbatch -N3 --ntasks-per-node=2 --no-kill -o job.log held.sbatch");
  ASSERT_TRUE(comes(cluster, "ls " + run_.folder().path().string(), "begun", 60));
  cluster.kill("n3");
  run_.folder().write("go", "");
  EXPECT_TRUE(comes(cluster, "cat " + file("job.log"), "with: 0", 300)) << run_.folder().read("job.log");
  EXPECT_THAT(run_.folder().read("job.log"),
              AllOf(ContainsRegex("n3 [^\n]*\\(--min-nodes 2 would start on the 2 remaining nodes\\)"),
                    HasSubstr("without: 2\n"), HasSubstr("left out: n3"), HasSubstr("4 ranks on n1 (2), n2 (2)"),
                    HasSubstr("done after step 30"), Not(HasSubstr("\x1e"))));
}

// Options that contradict the allocation are refused.
TEST_F(Slurm, AWorldThatContradictsTheAllocation) {
  const Cluster cluster(2, true);
  ASSERT_TRUE(comes(cluster, "sinfo -h -o %T", "idle", 60));
  const auto inside = [&](const std::vector<std::string>& options) {
    std::vector<std::string> all = {"salloc", "-N2", "--ntasks-per-node=1"};
    for (std::string& word : launch(options)) all.push_back(std::move(word));
    return run(cluster.in("n1", all), 90);
  };
  const Outcome more = inside({"--ranks-per-node", "2"});
  EXPECT_EQ(more.code, static_cast<int>(Exit::usage)) << more.all();
  EXPECT_THAT(more.errors, AllOf(HasSubstr("--ranks-per-node 2"), HasSubstr("1 slot")));
  const Outcome other = inside({"--hosts", "n1,n9"});
  EXPECT_EQ(other.code, static_cast<int>(Exit::usage)) << other.all();
  EXPECT_THAT(other.errors, AllOf(HasSubstr("n9"), HasSubstr("does not have")));
}

}  // namespace
}  // namespace strata::tests
