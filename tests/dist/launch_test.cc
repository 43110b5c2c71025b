// Tests strata launch on this machine only: what it starts, passes on and restarts. Tests with several nodes are in
// tests/cluster.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/error.h"
#include "tests/dist/launch_alone.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(LaunchAlone, StartsRanksOnThisMachine) {
  const Outcome outcome = run(launch({"--ranks-per-node", "2"}), 120);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("strata: 2 ranks on "), HasSubstr("of this machine, started by mpirun"),
                                    HasSubstr("ZeRO-0 over 2 ranks"), Not(HasSubstr("<stderr>"))));
  EXPECT_THAT(log("rank-00000.log"), HasSubstr("step 3/3"));
  EXPECT_THAT(log("events.jsonl"), AllOf(HasSubstr(R"("event":"start")"), HasSubstr(R"("ranks":2,"exit":0)")));
}

// A rank is killed: another rank reports it, and the run continues from the checkpoint with the same bits.
TEST_F(LaunchAlone, AKilledRankIsRestarted) {
  const std::vector<std::string> sets = {"training.max_steps=2000", "checkpoint.every=10", checkpoints(),
                                         "report.summary=" + run_.file("summary.json")};
  Running running(launch({"--ranks-per-node", "2"}, sets));
  ASSERT_TRUE(running.wait_until(
      [&](const auto&, const auto&) { return std::filesystem::exists(run_.file("checkpoints/step-00000020")); }, 120));
  signal_rank(1, "KILL");
  const Outcome outcome = running.wait(240);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("restart 1 of 3: 2 ranks"), HasSubstr("resumes after step "),
                                    Not(HasSubstr("run noticed"))));
  EXPECT_THAT(outcome.errors, HasSubstr("done after step 2000"));
  const auto bits = [&](const std::string& name) {
    const std::string text = run_.folder().read(name);
    return text.substr(text.find("\"weights_hash\":"), 50);
  };
  const Outcome alone = run(run_.train({"device.threads=1", "training.global_batch_size=4", "training.max_steps=2000",
                                        "report.summary=" + run_.file("alone.json")}),
                            120);
  EXPECT_EQ(alone.code, 0) << alone.all();
  EXPECT_EQ(bits("summary.json"), bits("alone.json"));
}

// Only an agent is killed (as if memory ran out). Its node's ranks are asked to stop, but that is not a stop by the
// user.
TEST_F(LaunchAlone, AKilledAgentIsRestarted) {
  Running running(launch({"--ranks-per-node", "2"}, {"training.max_steps=2000", "checkpoint.every=10", checkpoints()}));
  ASSERT_TRUE(running.wait_until(
      [&](const auto&, const auto&) { return std::filesystem::exists(run_.file("checkpoints/step-00000020")); }, 120));
  kill_agent();
  const Outcome outcome = running.wait(240);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("its agent was ended by signal 9"), HasSubstr("restart 1 of 3: 2 ranks"),
                                    HasSubstr("resumes after step "), HasSubstr("done after step 2000")));
}

// Without checkpoints the run has then failed. But a run that was already asked to stop counts as stopped.
TEST_F(LaunchAlone, AKilledAgentEndsARunWithoutRestarts) {
  {
    Running running(launch({}, {"training.max_steps=1000000"}));
    ASSERT_TRUE(running.wait_until(steps(1), 120));
    kill_agent();
    const Outcome outcome = running.wait(120);
    EXPECT_EQ(outcome.code, static_cast<int>(Exit::failed)) << outcome.all();
    EXPECT_THAT(last_line(outcome), AllOf(HasSubstr("is lost"), HasSubstr("--max-restarts is 0")));
  }
  Running running(launch({"--max-restarts", "3"}, {"training.max_steps=1000000", checkpoints()}));
  ASSERT_TRUE(running.wait_until(steps(1), 120));
  EXPECT_EQ(run({kStrata, "ctl", "stop", run_.file("checkpoints")}, 60).code, 0);
  kill_agent();
  const Outcome outcome = running.wait(120);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_THAT(outcome.errors, Not(HasSubstr("starts again")));
}

// A failure that would repeat is not retried, and its sentence is the last line.
TEST_F(LaunchAlone, ARecurringFailureIsNotRetried) {
  const Outcome corrupt = run(
      [&] {
        run_.folder().write("empty.bin", "");
        return launch({"--max-restarts", "3"}, {"data.train=" + run_.file("empty.bin")});
      }(),
      120);
  EXPECT_EQ(corrupt.code, static_cast<int>(Exit::corrupt)) << corrupt.all();
  EXPECT_THAT(last_line(corrupt), AllOf(StartsWith("strata: "), HasSubstr("empty.bin")));
  const Outcome small = run(launch({"--max-restarts", "3", "--ranks-per-node", "2"}, {"memory.device=4KiB"}), 120);
  EXPECT_EQ(small.code, static_cast<int>(Exit::does_not_fit)) << small.all();
  for (const Outcome* outcome : {&corrupt, &small}) EXPECT_THAT(outcome->errors, Not(HasSubstr("starts again")));
  EXPECT_THAT(log("events.jsonl"), AllOf(HasSubstr(R"("exit":4,"cause":)"), HasSubstr(R"("exit":3,"cause":)")));
}

// A non-finite loss is retried once. If it occurs at the same step again, it is not a coincidence.
TEST_F(LaunchAlone, ARepeatedNonFiniteLossEndsTheRun) {
  const Outcome outcome =
      run(launch({"--max-restarts", "5"}, {"optimizer.learning_rate=1e30", "training.max_steps=50"}), 120);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::failed)) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("restart 1 of 5"), Not(HasSubstr("restart 2 of 5"))));
  EXPECT_THAT(last_line(outcome), AllOf(HasSubstr("twice, at the same step"), HasSubstr("is not finite")));
}

TEST_F(LaunchAlone, AnFp16OverflowIsNotRestarted) {
  for (const char* set : {"model.config.initializer_range=1e6", "fp16.initial_scale=1e30"}) {
    const Outcome outcome = run(launch({"--max-restarts", "5"}, {set, "training.precision=fp16"}), 120);
    EXPECT_EQ(outcome.code, static_cast<int>(Exit::failed)) << outcome.all();
    EXPECT_THAT(outcome.errors, Not(HasSubstr("starts again"))) << outcome.all();
  }
}

// Without the launcher, an agent ends the ranks of its node.
TEST_F(LaunchAlone, RanksOfAKilledLauncherEnd) {
  Running running(launch({"--ranks-per-node", "2"}, {"training.max_steps=1000000"}));
  ASSERT_TRUE(running.wait_until(steps(1), 120));
  running.send(SIGKILL);
  (void)running.wait(60);
  const Outcome left = run({"bash", "-c",
                            "for i in $(seq 150); do pgrep -f '[t]rain .*" + run_.folder().path().string() +
                                "' >/dev/null || exit 0; sleep 0.2; done; exit 1"},
                           60);
  EXPECT_EQ(left.code, 0) << "ranks are still running";
}

// A node answers after the time for which agents wait for a message. Meanwhile launch sends messages to the other
// agents, so they stay.
TEST_F(LaunchAlone, OthersWaitForANodeThatAnswersLate) {
  // Stands in for ssh, whose last arguments are the host and the command.
  const auto agent = run_.folder().write("agent",
                                         "#!/bin/bash\nwhile [ \"$1\" != 127.0.0.2 ]; do shift; done; shift\n"
                                         "case \"$*\" in *node-agent*) sleep 8 ;; esac\nexec sh -c \"$*\"\n");
  std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
  std::vector<std::string> command =
      launch({"--hosts", "127.0.0.1,127.0.0.2", "--no-preflight"}, {"control.timeout=4"});
  command.insert(command.begin(), {"env", "OMPI_MCA_plm_rsh_agent=" + agent.string()});
  Running running(command);
  if (is_prrte()) {  // whose ranks do not find each other if their nodes are one machine
    const auto starts = [](const auto&, const std::string& errors) { return errors.find("the recipe") != errors.npos; };
    EXPECT_TRUE(running.wait_until(starts, 60));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    running.send(SIGTERM);
  }
  const Outcome outcome = running.wait(120);
  EXPECT_EQ(outcome.code, is_prrte() ? static_cast<int>(Exit::requeue) : 0) << outcome.all();
  EXPECT_GT(outcome.seconds, 8);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("2 ranks on 127.0.0.1 (1), 127.0.0.2 (1)"), Not(HasSubstr("lost"))));
}

// The program is built again during the run, from the same sources.
TEST_F(LaunchAlone, AProgramReplacedDuringTheRunCanRestart) {
  const std::string program = run_.file("program");
  std::filesystem::copy_file(kStrata, program);
  std::vector<std::string> command =
      launch({"--ranks-per-node", "2"}, {"training.max_steps=1000000", "checkpoint.every=10", checkpoints()});
  command[0] = program;
  Running running(command);
  ASSERT_TRUE(running.wait_until(
      [&](const auto&, const auto&) { return std::filesystem::exists(run_.file("checkpoints/step-00000020")); }, 120));
  std::filesystem::copy_file(kStrata, program + ".new");
  std::filesystem::rename(program + ".new", program);
  signal_rank(1, "KILL");
  ASSERT_TRUE(running.wait_until(steps(2), 120));
  running.send(SIGUSR1);
  const Outcome outcome = running.wait(180);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
}

// control.timeout = 0 means forever, and not at once.
TEST_F(LaunchAlone, WithoutATimeoutNothingIsLost) {
  const Outcome outcome = run(launch({}, {"control.timeout=0", "training.max_steps=300"}), 120);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("done after step 300"));
}

TEST_F(LaunchAlone, MistakesAreNamedBeforeAnythingStarts) {
  const auto expect = [](const std::vector<std::string>& command, const testing::Matcher<std::string>& sentence) {
    const Outcome outcome = run(command, 60);
    EXPECT_COMPLAINT(outcome, Exit::usage, sentence);
  };
  expect({kStrata, "launch"}, HasSubstr("nothing to launch"));
  expect({kStrata, "launch", "--", "eval", "x.toml"}, HasSubstr("launch starts train, not eval"));
  expect({kStrata, "launch", "train", "x.toml"}, HasSubstr("comes after two dashes: launch ... -- train RECIPE"));
  expect({kStrata, "launch", "--", "train", "nowhere.toml"}, HasSubstr("nowhere.toml"));
  expect(launch({"--hosts", "no-such-node.invalid:2"}), HasSubstr("no-such-node.invalid has no address"));
  expect(launch({"--min-nodes", "2"}), HasSubstr("--min-nodes is 2, but this machine has only 1 node"));
  // Both write events.jsonl there. Logs must not lie where the run removes checkpoints.
  expect(launch({}, {"report.dir=" + run_.file("logs")}), HasSubstr("report.dir and --logs are the same file"));
  expect({kStrata, "launch", "--logs", run_.file("checkpoints/step-00000001"), "--", "train", "--set", checkpoints(),
          "--set", "model.preset=tiny-gpt2", "--set", "training.max_steps=3", "--set",
          "data.train=" + run_.file("tokens.bin")},
         AllOf(HasSubstr("--logs"), HasSubstr("the run itself writes or removes step-00000001")));
  expect(launch({}, {"training.global_batch_size=5", "training.micro_batch_size=2"}),
         HasSubstr("cannot be divided evenly"));
}

}  // namespace
}  // namespace strata::tests
