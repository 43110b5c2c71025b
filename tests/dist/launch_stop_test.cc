// Tests strata launch on this machine only: how it is stopped, and that a blocked screen delays nothing.
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

// Before a rank has printed anything, there is nothing to wait for, and mpirun may not handle its signals yet.
TEST_F(LaunchAlone, AStopBeforeTheRanksStartEndsLaunchAtOnce) {
  for (const char* moment : {"1 rank on ", "the recipe, without keys"}) {
    Running running(launch({"--no-preflight"}, {checkpoints(), "training.max_steps=1000000"}));
    ASSERT_TRUE(running.wait_until(
        [&](const std::string&, const std::string& errors) { return errors.find(moment) != std::string::npos; }));
    running.send(SIGINT);
    const Outcome outcome = running.wait(60);
    EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
    EXPECT_THAT(last_line(outcome), AllOf(HasSubstr("stopped on request"), HasSubstr("run the same command to ")));
    EXPECT_THAT(outcome.errors, Not(HasSubstr("mpirun ended")));
  }
}

TEST_F(LaunchAlone, SignalsRequestAStop) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    Running running(launch({"--ranks-per-node", "2"}, {"training.max_steps=1000000", checkpoints()}));
    ASSERT_TRUE(running.wait_until(steps(1), 120));
    running.send(signal);
    const Outcome outcome = running.wait(180);
    EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << signal << outcome.all();
    EXPECT_THAT(last_line(outcome), StartsWith("strata: stopped on request after step ")) << outcome.all();
  }
}

// A closed terminal sends SIGHUP twice: from the kernel and from the shell.
TEST_F(LaunchAlone, AClosedTerminalRequestsOneStop) {
  Running running(launch({"--ranks-per-node", "2"}, {"training.max_steps=1000000", checkpoints()}));
  ASSERT_TRUE(running.wait_until(steps(1), 120));
  running.send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  running.send(SIGHUP);
  running.send(SIGTERM);
  const Outcome outcome = running.wait(180);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_THAT(last_line(outcome), StartsWith("strata: stopped on request after step ")) << outcome.all();
}

// scancel signals all processes of a job. Agents stay until launch ends, so that no node counts as lost meanwhile.
TEST_F(LaunchAlone, SignalsDoNotEndAgents) {
  Running running(launch({"--ranks-per-node", "2"}, {"training.max_steps=1000000", checkpoints()}));
  ASSERT_TRUE(running.wait_until(steps(1), 120));
  const std::string agents = "pgrep -f '^" + kStrata + " node-agent'";
  ASSERT_EQ(run({"bash", "-c", agents}, 10).code, 0);
  for (const char* signal : {"TERM", "HUP", "INT", "USR1"})
    (void)run({"bash", "-c", "kill -" + std::string(signal) + " $(" + agents + ")"}, 10);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_EQ(run({"bash", "-c", agents}, 10).code, 0) << "the agent has ended";
  running.send(SIGTERM);
  const Outcome outcome = running.wait(180);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_THAT(outcome.errors, Not(HasSubstr("lost")));
}

// A rank cannot finish its step. If mpirun wakes the rank before it ends it, there is a checkpoint.
TEST_F(LaunchAlone, ASecondRequestStopsAtOnce) {
  Running running(
      launch({"--ranks-per-node", "2"}, {"training.max_steps=1000000", "checkpoint.every=10", checkpoints()}));
  ASSERT_TRUE(running.wait_until(
      [&](const auto&, const auto&) { return std::filesystem::exists(run_.file("checkpoints/step-00000020")); }, 120));
  signal_rank(1, "STOP");
  running.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  running.send(SIGINT);
  const Outcome outcome = running.wait(60);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_THAT(outcome.errors,
              HasSubstr("stopping on request: the run ends after this step; a second signal ends it immediately"));
  EXPECT_TRUE(outcome.in_time) << outcome.all();
  EXPECT_THAT(last_line(outcome), testing::AnyOf(StartsWith("strata: ended at once, after a second request to stop: "),
                                                 StartsWith("strata: stopped on request after step ")));
}

// systemd ends a service by signalling all of its processes at once. mpirun's own exit code is then meaningless.
TEST_F(LaunchAlone, SignallingAllProcessesStopsTheRun) {
  Running running(launch({"--ranks-per-node", "2"}, {"training.max_steps=1000000", checkpoints()}));
  ASSERT_TRUE(running.wait_until(steps(1), 120));
  (void)run({"bash", "-c", "kill -TERM $(pgrep -f '" + run_.folder().path().string() + "' | grep -vx $$)"}, 10);
  const Outcome outcome = running.wait(180);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("its checkpoint is written"));
}

// A launch that is stopped while it waits for a restart has a run that can resume, and its exit code says so.
TEST_F(LaunchAlone, AStopBeforeARestartExitsAsResumable) {
  Running running(
      launch({"--ranks-per-node", "2"}, {"training.max_steps=1000000", "checkpoint.every=10", checkpoints()}));
  ASSERT_TRUE(running.wait_until(
      [&](const auto&, const auto&) { return std::filesystem::exists(run_.file("checkpoints/step-00000020")); }, 120));
  signal_rank(1, "KILL");
  ASSERT_TRUE(running.wait_until(
      [](const auto&, const std::string& errors) { return errors.find("starts again in") != std::string::npos; }, 120));
  running.send(SIGUSR1);
  const Outcome outcome = running.wait(180);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_EQ(last_line(outcome),
            "strata: stopped on request before a restart: run the same command to resume from the newest checkpoint");
  EXPECT_THAT(log("events.jsonl"), HasSubstr(R"("exit":75,"cause":"stopped on request before a restart)"));
}

// A run that was to start over has been restarted from its own checkpoint. The command as typed would not resume it,
// whether the stop comes before the restart or after it.
TEST_F(LaunchAlone, AStopNamesTheKeyNeededToResume) {
  for (const bool restarted : {false, true}) {
    std::filesystem::remove_all(run_.file("checkpoints"));
    Running running(launch({"--ranks-per-node", "2"}, {"training.max_steps=1000000", "checkpoint.every=10",
                                                       "checkpoint.resume=none", checkpoints()}));
    ASSERT_TRUE(running.wait_until(
        [&](const auto&, const auto&) { return std::filesystem::exists(run_.file("checkpoints/step-00000020")); },
        120));
    signal_rank(1, "KILL");
    const char* moment = restarted ? "resumes after step" : "starts again in";
    ASSERT_TRUE(running.wait_until(
        [&](const auto&, const std::string& errors) { return errors.find(moment) != std::string::npos; }, 120));
    running.send(SIGUSR1);
    const Outcome outcome = running.wait(180);
    EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
    EXPECT_THAT(last_line(outcome), HasSubstr("run the same command with --set checkpoint.resume=auto to resume"));
  }
}

// The reader stops reading, like a terminal after Ctrl-S. The run continues, and its agents still hear from launch.
TEST_F(LaunchAlone, ABlockedScreenDoesNotDelayTheRun) {
  std::string line;
  for (const std::string& word : launch({}, {"control.timeout=3", "training.max_steps=3000"}))
    line += "'" + word + "' ";
  const Outcome outcome =
      run({"bash", "-o", "pipefail", "-c",
           line + "2>&1 | (for i in $(seq 600); do grep -q 'step 3000/' " + run_.file("logs/rank-00000.log") +
               " 2>/dev/null && break; sleep 0.2; done; sleep 6; cat)"},
          240);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("step 3000/3000"), Not(HasSubstr("lost")), Not(HasSubstr("starts again"))));
}

// The end is not delayed either, if somebody sees it hang and sends a signal.
TEST_F(LaunchAlone, ASignalEndsTheWaitForABlockedScreen) {
  std::string line;
  for (const std::string& word : launch({}, {"training.max_steps=3000"})) line += "'" + word + "' ";
  const std::string launcher = "'^" + kStrata + " launch --logs " + run_.file("logs") + "'";
  const Outcome outcome = run(
      {"bash", "-c",
       "(" + line + "; echo code $? >" + run_.file("code") + ") 2>&1 | (for i in $(seq 600); do grep -qs '\"end\"' " +
           run_.file("logs/events.jsonl") + " && break; sleep 0.2; done; sleep 1; pgrep -f " + launcher +
           " >/dev/null && echo waits; pkill -TERM -f " + launcher + "; for i in $(seq 150); do [ -e " +
           run_.file("code") + " ] && break; sleep 0.2; done; cat " + run_.file("code") + ")"},
      240);
  EXPECT_EQ(outcome.output, "waits\ncode 0\n") << outcome.all();
}

// A rank that is lost meanwhile is restarted, and launch's messages about it wait, too.
TEST_F(LaunchAlone, ABlockedScreenDoesNotDelayARestart) {
  std::string line;
  for (const std::string& word : launch({"--ranks-per-node", "2", "--max-restarts", "1"},
                                        {"training.max_steps=1000000", "control.timeout=5", checkpoints()}))
    line += "'" + word + "' ";
  const std::string events = run_.file("logs/events.jsonl"), log = run_.file("logs/rank-00000.log");
  const std::string wait =
      "wait_for() { for i in $(seq 600); do grep -qs \"$1\" \"$2\" && return; sleep 0.2; done; }; ";
  // Enough steps to fill the pipe, which holds 64 KiB.
  const std::string kill = "for p in $(pgrep -f 'train .*" + run_.folder().path().string() +
                           "'); do grep -qz '^OMPI_COMM_WORLD_RANK=1$' /proc/$p/environ && kill -9 $p; done; ";
  const Outcome outcome =
      run({"bash", "-o", "pipefail", "-c",
           wait + line + "2>&1 | (wait_for 'step 2000/' " + log + "; " + kill + "wait_for restart " + events +
               "; sleep 12; grep -o restart " + events + "; grep -c '\"start\"' " + events + "; pkill -USR1 -f '^" +
               kStrata + " launch --logs " + run_.file("logs") + "'; cat)"},
          240);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_THAT(outcome.output, AllOf(StartsWith("restart\n2\n"), HasSubstr("starts again in 2 s"),
                                    HasSubstr("stopped on request after step ")));
}

// If only launch were stopped, its agents would end the ranks.
TEST_F(LaunchAlone, CtrlZHasNoEffect) {
  Running running(launch({}, {"control.timeout=3", "training.max_steps=1000000", checkpoints()}));
  ASSERT_TRUE(running.wait_until(steps(1), 120));
  running.send(SIGTSTP);
  std::this_thread::sleep_for(std::chrono::seconds(6));
  running.send(SIGUSR1);
  EXPECT_EQ(running.wait(180).code, static_cast<int>(Exit::requeue));
}

}  // namespace
}  // namespace strata::tests
