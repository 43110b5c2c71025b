// Ranks that are killed, and runs that are asked to stop.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <simdjson.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/host/host.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class SignalFault : public testing::Test {
 protected:
  // More steps than any test needs.
  std::vector<std::string> train(const std::vector<std::string>& sets = {}) const {
    auto all = sets;
    all.emplace_back("training.max_steps=1000000");
    all.push_back("report.summary=" + run_.file("summary.json"));
    return run_.train(all);
  }
  // Leaves a rank's process number in pid.RANK and its exit code in exit.RANK.
  std::string script() const {
    const std::string folder = run_.folder().path().string();
    return "trap '' TERM USR1; \"$@\" & echo $! >" + folder + "/pid.$OMPI_COMM_WORLD_RANK; wait $!; code=$?; " +
           end_together(folder);
  }
  int pid(int rank) const { return number_from(run_.file(fmt::format("pid.{}", rank))); }
  int exit_code(int rank) const { return number_from(run_.file(fmt::format("exit.{}", rank))); }
  static bool steps(const std::string&, const std::string& errors) {
    return errors.find("step 3/") != std::string::npos;
  }
  // The end of a run that was asked to stop after some step.
  void expect_stopped(const Outcome& outcome) {
    EXPECT_COMPLAINT(outcome, Exit::failed,
                     AllOf(HasSubstr("stopped on request after step "), HasSubstr("nothing was saved")));
    simdjson::dom::parser parser;
    const simdjson::dom::element summary = parser.load(run_.file("summary.json"));
    const std::int64_t done = summary["steps"];
    EXPECT_GE(done, 3);
    EXPECT_EQ(std::int64_t(summary["exit"]), 1);
    EXPECT_THAT(outcome.errors, HasSubstr(fmt::format("after step {};", done)));
    EXPECT_THAT(outcome.errors, HasSubstr(fmt::format("step {}/", done)));
  }

  TinyRun run_;
};

struct Killed : SignalFault, testing::WithParamInterface<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(RanksAndTransports, Killed,
                         testing::Values(std::tuple(1, "shared"), std::tuple(0, "messages")));

// All end within seconds, and one of the survivors reports the dead rank.
TEST_P(Killed, SurvivorsEndAndNameTheDeadRank) {
  const auto [victim, transport] = GetParam();
  Running running(under_mpirun(3, train({std::string("comm.transport=") + transport, "zero.stage=3"}), script()));
  ASSERT_TRUE(running.wait_until(steps));
  const int dead = pid(victim);
  const auto start = std::chrono::steady_clock::now();
  kill(dead, SIGKILL);
  for (int rank = 0; rank < 3; ++rank)
    while (kill(pid(rank), 0) == 0 && std::chrono::steady_clock::now() - start < 10s) std::this_thread::sleep_for(10ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  const Outcome outcome = running.wait();
  EXPECT_NE(outcome.code, 0);
  const std::string names = fmt::format("rank {} (pid {} on {}) ended without a message", victim, dead, host_name());
  EXPECT_THAT(outcome.complaints(), ElementsAre(AllOf(HasSubstr(names), testing::ContainsRegex("rank [0-2] ends"))))
      << outcome.all();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(exit_code(rank), rank == victim ? 128 + SIGKILL : 1) << rank;
}

// Ranks that wait for a pipeline stage are in stages themselves. The message names the dead rank's coordinates.
TEST_P(Killed, APipelineRankIsNamedWithItsCoordinates) {
  const auto [place, transport] = GetParam();
  const int victim = place ? 3 : 0;
  Running running(under_mpirun(4,
                               train({std::string("comm.transport=") + transport, "zero.stage=2", "parallel.stages=2",
                                      "training.gradient_accumulation_steps=4", "device.threads=1"}),
                               script()));
  ASSERT_TRUE(running.wait_until(steps));
  const int dead = pid(victim);
  const auto start = std::chrono::steady_clock::now();
  kill(dead, SIGKILL);
  for (int rank = 0; rank < 4; ++rank)
    while (kill(pid(rank), 0) == 0 && std::chrono::steady_clock::now() - start < 10s) std::this_thread::sleep_for(10ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  const Outcome outcome = running.wait();
  EXPECT_NE(outcome.code, 0);
  const std::string names = fmt::format("rank {} ({}, pid {} on {}) ended without a message", victim,
                                        victim ? "data 1, stage 1" : "data 0, stage 0", dead, host_name());
  EXPECT_THAT(outcome.complaints(),
              ElementsAre(AllOf(HasSubstr(names), testing::ContainsRegex("rank [0-3] .data [01], stage [01]. ends"))))
      << outcome.all();
}

TEST_F(SignalFault, TermAndUsr1FinishTheStepOfASingleRank) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    Running running(train());
    ASSERT_TRUE(running.wait_until(steps));
    running.send(signal);
    expect_stopped(running.wait());
  }
}

// Whichever rank is asked, all stop after the same step.
TEST_F(SignalFault, SigtermToOneRankStopsAll) {
  Running running(under_mpirun(3, train({"zero.stage=1"}), script()));
  ASSERT_TRUE(running.wait_until(steps));
  kill(pid(2), SIGTERM);
  expect_stopped(running.wait());
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(exit_code(rank), 1) << rank;
}

TEST_F(SignalFault, Usr1ThroughMpirunStopsAll) {
  Running running(under_mpirun(2, train()));
  ASSERT_TRUE(running.wait_until(steps));
  running.send(SIGUSR1);
  expect_stopped(running.wait());
}

// mpirun and its ranks are killed at once, as by a lack of memory or a scheduler. Nobody cleans up after them before
// the next start.
TEST_F(SignalFault, TheNextStartCleansUpAfterAKilledOne) {
  const std::string place = run_.file("sessions");
  std::filesystem::create_directory(place);
  const auto below = [&](std::vector<std::string> command) {
    command.insert(command.begin() + 1, "TMPDIR=" + place);  // after env
    return command;
  };
  Running running(below(under_mpirun(2, train(), script())));
  ASSERT_TRUE(running.wait_until(steps));
  std::vector<std::string> segments;
  for (const int rank : {0, 1}) {
    kill(pid(rank), SIGSTOP);
    std::ifstream maps(fmt::format("/proc/{}/maps", pid(rank)));
    for (std::string line; std::getline(maps, line);)
      if (const std::size_t at = line.find("/dev/shm/"); at != line.npos) segments.push_back(line.substr(at));
  }
  running.send(SIGKILL);
  for (const int rank : {0, 1}) kill(pid(rank), SIGKILL);
  running.wait();
  for (const std::string& segment : segments) EXPECT_TRUE(std::filesystem::exists(segment)) << segment;
  EXPECT_FALSE(std::filesystem::is_empty(place));
  const Outcome next = run(below(under_mpirun(2, run_.train())));
  EXPECT_EQ(next.code, 0) << next.all();
  for (const std::string& segment : segments) EXPECT_FALSE(std::filesystem::exists(segment)) << segment;
  EXPECT_TRUE(std::filesystem::is_empty(place));
}

// A request during a step ends the run after it. An evaluation that is due then waits until the run resumes. Some of
// these signals come during an evaluation, which then completes; they come later and later after the end of a step.
TEST_F(SignalFault, AStopDuringAStepStartsNoEvaluation) {
  run_.write_tokens("validation.bin", 64);
  bool before_an_evaluation = false;
  for (int i = 0; i < 20 && !before_an_evaluation; ++i) {
    Running running(train(
        {"data.validation=" + run_.file("validation.bin"), "evaluation.every=1", "training.global_batch_size=64"}));
    ASSERT_TRUE(running.wait_until(steps));
    std::this_thread::sleep_for(i * 3ms);
    running.send(SIGUSR1);
    const Outcome outcome = running.wait();
    simdjson::dom::parser parser;
    const std::int64_t done = parser.load(run_.file("summary.json"))["steps"];
    ASSERT_THAT(outcome.errors, HasSubstr(fmt::format("stopped on request after step {};", done)));
    before_an_evaluation = outcome.errors.find(fmt::format("evaluation after step {}:", done)) == std::string::npos;
  }
  EXPECT_TRUE(before_an_evaluation);
}

// SIGHUP acts like SIGTERM, unless nohup ignores it.
TEST_F(SignalFault, HangUpRequestsAStop) {
  const auto with = [](std::vector<std::string> first, const std::vector<std::string>& command) {
    first.insert(first.end(), command.begin(), command.end());
    return first;
  };
  Running running(with({"env", "--default-signal=HUP"}, train()));
  ASSERT_TRUE(running.wait_until(steps));
  running.send(SIGHUP);
  expect_stopped(running.wait());

  Running ignores(with({"env", "--ignore-signal=HUP"}, train()));
  ASSERT_TRUE(ignores.wait_until(steps));
  ignores.send(SIGHUP);
  ignores.send(SIGTERM);
  expect_stopped(ignores.wait());
}

// A full pipe without a reader replaces a report. The run blocks in its first line.
class FullPipe {
 public:
  explicit FullPipe(std::string path) : path_(std::move(path)) {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    fd_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    bytes_.resize(static_cast<std::size_t>(fcntl(fd_, F_SETPIPE_SZ, 4096)), ' ');
    EXPECT_EQ(write(fd_, bytes_.data(), bytes_.size()), static_cast<ssize_t>(bytes_.size()));
  }
  ~FullPipe() { close(fd_); }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  void drain() { EXPECT_EQ(read(fd_, bytes_.data(), bytes_.size()), static_cast<ssize_t>(bytes_.size())); }

  // Whether process `pid` waits for space in the pipe. Gives it some time to get there.
  bool holds(int pid) const {
    for (int polls = 0; polls < 1500; ++polls) {
      if (is_written_by(pid)) return true;
      std::this_thread::sleep_for(20ms);
    }
    return false;
  }

 private:
  // Reads which system call the process is in.
  bool is_written_by(int pid) const {
    std::ifstream stream(fmt::format("/proc/{}/syscall", pid));
    long number = -1;
    std::string fd;
    if (!(stream >> number >> fd) || (number != SYS_write && number != SYS_writev)) return false;
    std::error_code error;
    return std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", pid, std::stol(fd, nullptr, 16)), error) ==
           path_;
  }

  std::string path_;
  int fd_ = -1;
  std::string bytes_;
};

// A run of two steps that FullPipe holds up in the first; leaves its process number in pid.0.
struct HeldRun : SignalFault {
  void SetUp() override {
    if (access("/proc/self/syscall", R_OK) != 0) GTEST_SKIP() << "this system does not show /proc/PID/syscall";
  }
  std::vector<std::string> command() const {
    std::vector<std::string> all = {
        "env", "--default-signal=INT", "sh", "-c", "echo $$ >" + run_.file("pid.0") + "; exec \"$@\"", "sh"};
    for (const std::string& word : run_.train({"training.max_steps=2", "report.jsonl=" + run_.file("steps.jsonl"),
                                               "checkpoint.dir=" + run_.file("checkpoints")}))
      all.push_back(word);
    return all;
  }
  static bool said_how(const std::string&, const std::string& errors) {
    return errors.find("one rank without mpirun") + 1;
  }
};

// The first Ctrl-C requests a stop. The second ends the run, even if it cannot finish its step.
TEST_F(HeldRun, TheSecondCtrlCEndsTheRunAtOnce) {
  const FullPipe pipe(run_.file("steps.jsonl"));
  Running running(command());
  ASSERT_TRUE(running.wait_until(said_how));
  ASSERT_TRUE(pipe.holds(pid(0)));
  running.send(SIGINT);
  std::this_thread::sleep_for(200ms);
  ASSERT_TRUE(pipe.holds(pid(0))) << "after one request, it finishes the step";
  running.send(SIGINT);
  const Outcome outcome = running.wait();
  EXPECT_TRUE(outcome.in_time) << outcome.all();
  EXPECT_EQ(outcome.signal, SIGINT) << outcome.all();
}

// A request before the last step leaves nothing to stop after it, so the run is done.
TEST_F(HeldRun, ARequestBeforeTheLastStepLetsTheRunFinish) {
  FullPipe pipe(run_.file("steps.jsonl"));
  Running running(command());
  ASSERT_TRUE(running.wait_until(said_how));
  ASSERT_TRUE(pipe.holds(pid(0)));
  running.send(SIGTERM);
  pipe.drain();
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("step 2/2"), HasSubstr("done after step 2")));
  EXPECT_TRUE(std::filesystem::exists(run_.file("checkpoints/step-00000002/manifest.json")));
}

// `strata train 2>&1 | head`: the run continues and writes its files.
TEST_F(SignalFault, AClosedPipeDoesNotEndTheRun) {
  const std::string folder = run_.folder().path().string();
  std::vector<std::string> command = {
      "env", "--default-signal=PIPE", "sh", "-c", "{ \"$@\"; echo $? >" + folder + "/exit.0; } 2>&1 | head -n 1", "sh"};
  for (const std::string& word : run_.train({"training.max_steps=50", "checkpoint.dir=" + folder + "/checkpoints"}))
    command.push_back(word);
  const Outcome outcome = run(command);
  EXPECT_TRUE(outcome.in_time) << outcome.all();
  EXPECT_EQ(exit_code(0), 0);
  EXPECT_TRUE(std::filesystem::exists(run_.file("checkpoints/step-00000050/manifest.json")));
}

// A stop requested before the first step has no step to finish. A pipe without a reader blocks the run until then.
TEST_F(SignalFault, StopBeforeTheFirstStep) {
  const std::string pipe = run_.file("steps.jsonl");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Running running(train({"report.jsonl=" + pipe}));
  ASSERT_TRUE(running.wait_until(
      [](const auto&, const std::string& errors) { return errors.find("one rank without mpirun") + 1; }));
  running.send(SIGUSR1);
  std::this_thread::sleep_for(50ms);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  const Outcome outcome = running.wait();
  close(reader);
  EXPECT_COMPLAINT(outcome, Exit::failed, HasSubstr("stopped on request after step 0"));
  EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("step 1/")));
}

}  // namespace
}  // namespace strata::tests
