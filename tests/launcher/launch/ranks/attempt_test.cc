#include "launcher/launch/ranks/attempt.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "launcher/launch/node/facts.h"
#include "launcher/screen/printable.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

// Restores what StopSignalCounter changes.
class KeptSignals {
 public:
  KeptSignals() {
    for (auto& [signal, action] : actions_) sigaction(signal, nullptr, &action);
  }
  ~KeptSignals() {
    for (const auto& [signal, action] : actions_) sigaction(signal, &action, nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  std::array<std::pair<int, struct sigaction>, 7> actions_ = {
      {{SIGTERM, {}}, {SIGUSR1, {}}, {SIGINT, {}}, {SIGHUP, {}}, {SIGPIPE, {}}, {SIGTSTP, {}}, {SIGTTOU, {}}}};
};

TEST(StopSignalCounterTest, OneKeyMayArriveTwice) {
  const KeptSignals kept;
  const StopSignalCounter stop;
  EXPECT_EQ(stop.count(), 0);
  const auto begin = std::chrono::steady_clock::now();
  raise(SIGTERM);
  raise(SIGUSR1);
  if (std::chrono::steady_clock::now() - begin > 150ms) GTEST_SKIP() << "this machine is too busy";
  EXPECT_EQ(stop.count(), 1);
  std::this_thread::sleep_for(300ms);
  raise(SIGHUP);
  EXPECT_EQ(stop.count(), 1) << "a closed terminal sends it twice";
  raise(SIGTERM);
  EXPECT_EQ(stop.count(), 2);
  raise(SIGTSTP);  // which does nothing
}

TEST(StopSignalCounterTest, EachObjectCountsFromZero) {
  const KeptSignals kept;
  {
    const StopSignalCounter stop;
    raise(SIGUSR1);
    EXPECT_EQ(stop.count(), 1);
  }
  const StopSignalCounter stop;
  EXPECT_EQ(stop.count(), 0);
}

// Starts of two ranks by scripts that stand for mpirun and srun, and an agent's ssh.
class RunRanksTest : public testing::Test {
 protected:
  RunRanksTest() : path_(std::getenv("PATH")) { setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1); }
  ~RunRanksTest() override {
    folder_.write("end", "");  // the fake agent ends
    setenv("PATH", path_.c_str(), 1);
  }
  void program(const std::string& name, const std::string& text) const {
    std::filesystem::permissions(folder_.write(name, "#!/bin/bash\n" + text + "\n"), std::filesystem::perms::owner_all);
  }
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome run(const std::string& mpirun) {
    program(std::string(program_of(allocation_.starter)), mpirun);
    return run_ranks(allocation_, start_, agents_, stop_, screen_, folder_.path());
  }
  // Starts the agent of a node, which has both ranks. It answers each line, unless a file "mute" exists, that it cannot
  // end a process, and ends at the first line after a file "end" exists (a ping comes each second). Its read has no
  // timeout, which would lose the part of a line that it has read.
  void add_node() {
    folder_.write("facts", to_json(NodeFacts{}) + "\n");
    program("ssh", "while [ \"${1:0:11}\" != 198.51.100. ]; do shift; done\ncat " + file("facts") +
                       "\nwhile read number word && [ ! -e " + file("end") + " ]; do [ -e " + file("mute") +
                       " ] || echo \"{\\\"to\\\":$number,\\\"left\\\":[7]}\"; done");
    allocation_.hosts = {{kNode, {}}};
    start_.shares = {{kNode, 2}};
    agents_.start(allocation_.hosts, 60);
    ASSERT_TRUE(agents_.answers(kNode)) << agents_.problem(kNode);
  }
  // The command by which rank 0 ends with a message.
  static std::string last_words(const std::string& text, Exit code, EndReason reason = {}) {
    return "echo '[1,0]<stderr>:strata: " + text + failure_end(code, reason) + "'";
  }
  // Commands that print something as rank 0, wait until launch has read it, and ask launch to stop.
  std::string ask_for_stop(const std::string& words) const {
    return "echo '" + words + "'\nfor i in $(seq 600); do [ -s " + file("rank-00000.log") +
           " ] && break; sleep 0.05; done\nkill -TERM $PPID\n";
  }

  static constexpr const char* kNode = "198.51.100.1";  // an address reserved for documentation
  static constexpr const char* kWait = "\nfor i in $(seq 600); do sleep 0.05; done\nexit 3";

  KeptSignals signals_;
  tests::ScratchFolder folder_;
  std::string path_;
  Allocation allocation_;
  RankStart start_{{{"localhost", 2}}, {"train", "r.toml"}, {}, "run-1", {}, false};
  StopSignalCounter stop_;
  LaunchScreen screen_;
  Agents agents_{allocation_, "run-1", 300, {}, [] {}};
};

TEST_F(RunRanksTest, ASuccessHasNoCause) {
  const Outcome outcome = run("echo '[1,0]<stdout>:strata: done'");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.cause, "");
  EXPECT_FALSE(outcome.printed);
  EXPECT_THAT(outcome.lost, IsEmpty());
}

// mpirun has exit codes of its own.
TEST_F(RunRanksTest, TheExitCodeIsADocumentedOne) {
  for (const int code : {1, 2, 3, 4, 75}) EXPECT_EQ(run(fmt::format("exit {}", code)).code, code);
  for (const int code : {5, 127, 213}) EXPECT_EQ(run(fmt::format("exit {}", code)).code, 1) << code;
}

TEST_F(RunRanksTest, ARanksLastWordsAreTheCause) {
  const Outcome outcome =
      run(last_words("the loss is not finite", Exit::corrupt, {EndReason::Kind::not_finite, 7}) + "\nexit 1");
  EXPECT_EQ(outcome.cause, "the loss is not finite");
  EXPECT_TRUE(outcome.printed);
  EXPECT_EQ(outcome.code, 4) << "the rank's, not mpirun's";
  EXPECT_EQ(outcome.reason, (EndReason{EndReason::Kind::not_finite, 7}));
}

TEST_F(RunRanksTest, WithoutARanksWordsTheCauseIsMpirunsOutput) {
  Outcome outcome = run("for i in $(seq 15); do echo line $i >&2; echo ----- >&2; done; exit 7");
  std::string last = "line 4";
  for (int i = 5; i <= 15; ++i) last += fmt::format(" line {}", i);
  EXPECT_EQ(outcome.cause, "mpirun ended with exit code 7 and without a message from a rank; its output: " + last);
  EXPECT_FALSE(outcome.printed);
  EXPECT_EQ(outcome.code, 1);
  outcome = run("echo '[1,0]<stderr>:strata: the weights are loaded'; exit 7");
  EXPECT_EQ(outcome.cause, "mpirun ended with exit code 7; the last output of a rank: the weights are loaded");
  outcome = run("kill -KILL $$");
  EXPECT_THAT(outcome.cause, StartsWith("mpirun ended with exit code 137 (signal 9, "));
}

TEST_F(RunRanksTest, ForwardsARequestToStop) {
  const Outcome outcome =
      run("asked() { " + last_words("stopped on request", Exit::requeue, {EndReason::Kind::signal, 0}) +
          "; exit 75; }\ntrap asked USR1\n" + ask_for_stop("[1,0]<stderr>:step 1") + kWait);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue));
  EXPECT_EQ(outcome.cause, "stopped on request");
  EXPECT_TRUE(outcome.printed);
  EXPECT_TRUE(outcome.reason.is_stop());
  EXPECT_EQ(stop_.count(), 1);
}

// While mpirun starts, it does not forward signals.
TEST_F(RunRanksTest, ARequestBeforeTheRanksBeganEndsMpirun) {
  raise(SIGTERM);
  const Outcome outcome = run("exec sleep 60");
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue));
  EXPECT_THAT(outcome.cause, StartsWith("the ranks had not started yet: run the same command "));
}

TEST_F(RunRanksTest, ASecondRequestEndsTheRanksAtOnce) {
  const Outcome outcome = run("trap 'exit 9' INT\ntrap 'exit 10' TERM\ntrap '' USR1\n" +
                              ask_for_stop("[1,0]<stderr>:step 1") + "sleep 1\nkill -TERM $PPID" + kWait);
  EXPECT_EQ(outcome.cause, "mpirun ended with exit code 9; the last output of a rank: step 1");
  EXPECT_EQ(stop_.count(), 2);
}

TEST_F(RunRanksTest, SrunIsEndedBySigterm) {
  allocation_.starter = Starter::srun;
  const Outcome outcome = run("trap 'exit 9' INT\ntrap 'exit 10' TERM\ntrap '' USR1\n" + ask_for_stop("0: step 1") +
                              "sleep 1\nkill -TERM $PPID" + kWait);
  EXPECT_EQ(outcome.cause, "srun ended with exit code 10; the last output of a rank: step 1");
}

// Launch then ends the ranks itself, so their reason (a signal) is none, and the run may be started again.
TEST_F(RunRanksTest, ALostNodeIsAFailureAndNoStop) {
  add_node();
  const Outcome outcome =
      run("asked() { " + last_words("stopped by a signal", Exit::requeue, {EndReason::Kind::signal, 0}) +
          "; exit 75; }\ntrap asked INT\ntouch " + file("end") + kWait);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::failed));
  EXPECT_THAT(outcome.cause, StartsWith("node 198.51.100.1 (ranks 0 to 1) is lost: its connection ended"));
  EXPECT_FALSE(outcome.printed);
  EXPECT_THAT(outcome.lost, ElementsAre(kNode));
  EXPECT_EQ(outcome.reason, EndReason{});
  EXPECT_EQ(stop_.count(), 0);
}

TEST_F(RunRanksTest, ANodeThatDoesNotAnswerAfterTheEndIsLost) {
  add_node();
  folder_.write("mute", "");
  const Outcome outcome = run(last_words("it broke", Exit::failed) + "\nexit 1");
  EXPECT_EQ(outcome.cause, "it broke; node 198.51.100.1 (ranks 0 to 1) no longer responds");
  EXPECT_FALSE(outcome.printed) << "not all of it";
  EXPECT_THAT(outcome.lost, ElementsAre(kNode));
  EXPECT_THAT(outcome.held, IsEmpty());
}

TEST_F(RunRanksTest, NamesNodesWithRanksThatCannotBeEnded) {
  add_node();
  const Outcome outcome = run(last_words("it broke", Exit::failed) + "\nexit 1");
  EXPECT_EQ(outcome.cause, "it broke");
  EXPECT_THAT(outcome.lost, IsEmpty());
  EXPECT_THAT(outcome.held, ElementsAre(kNode));
}

}  // namespace
}  // namespace strata::launcher
