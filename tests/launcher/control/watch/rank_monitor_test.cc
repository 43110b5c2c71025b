#include "launcher/control/watch/rank_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"

namespace strata::launcher::control {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

template <typename F>
bool happens(const F& f) {
  for (int polls = 0; polls < 2000; ++polls) {
    if (f()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

// The reports that a monitor has sent.
class SentReports {
 public:
  void add(const pb::NodeReport& report) {
    const std::lock_guard lock(mutex_);
    all_.push_back(report);
  }
  std::vector<pb::NodeReport> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<pb::NodeReport> all_;
};

// The monitor of a run with one rank. This process takes its node's reports.
class RankMonitorTest : public testing::Test {
 protected:
  RankMonitor::Setup setup() {
    RankMonitor::Setup setup;
    setup.token = &token_;
    setup.rank0 = "rank 0 on n1";
    setup.receive = [this](const pb::NodeReport& report) { sent_.add(report); };
    setup.dump_number = [this] { return asked_.load(); };
    setup.tick = [this](bool) { ++ticks_; };
    return setup;
  }
  bool ticks() {
    const int before = ticks_;
    return happens([&] { return ticks_ >= before + 3; });
  }

  const std::unique_ptr<comm::World> world_ = comm::solo_world();
  NodeMemory memory_{*world_};
  AbortToken token_;
  SentReports sent_;
  std::atomic<std::uint32_t> asked_{0};
  std::atomic<int> ticks_{0};
};

TEST_F(RankMonitorTest, ReportsThePlaceOfItsRank) {
  memory_.progress().enter(runtime::Phase::training);
  memory_.progress().step.store(7);
  const RankMonitor monitor(memory_, setup());
  ASSERT_TRUE(happens([&] { return sent_.all().size() >= 2; }));
  const pb::NodeReport report = sent_.all().back();
  EXPECT_EQ(report.node(), 0);
  ASSERT_EQ(report.ranks_size(), 1);
  const RankView view = view_of(report.ranks(0));
  EXPECT_EQ(view.rank, 0);
  EXPECT_EQ(view.phase, runtime::Phase::training);
  EXPECT_EQ(view.step, 7);
  EXPECT_EQ(report.dump_size(), 0);
  EXPECT_FALSE(token_.is_set());
}

// Reports come once per second, and one more comes soon after a rank has entered another phase.
TEST_F(RankMonitorTest, ReportsANewPhaseSoon) {
  const RankMonitor monitor(memory_, setup());
  const auto start = std::chrono::steady_clock::now();
  using enum runtime::Phase;
  for (const runtime::Phase phase : {planning, loading, training, evaluating, training, writing, ending}) {
    memory_.progress().enter(phase);
    EXPECT_TRUE(happens([&] {
      const auto all = sent_.all();
      return !all.empty() && view_of(all.back().ranks(0)).phase == phase;
    }));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4s) << "seven reports take six seconds otherwise";
}

TEST_F(RankMonitorTest, ShowsThatTheProcessRuns) {
  const RankMonitor monitor(memory_, setup());
  const std::int64_t first = memory_.progress().beat.load();
  EXPECT_GT(first, 0) << "before the constructor returns";
  EXPECT_TRUE(happens([&] { return memory_.progress().beat.load() > first; }));
}

// A rank that loads or hashes runs no tasks, so the bytes that its process moves show that it makes progress.
TEST_F(RankMonitorTest, CountsProgressOutsideOfTraining) {
  memory_.progress().enter(runtime::Phase::training);
  const RankMonitor monitor(memory_, setup());
  ASSERT_TRUE(ticks());
  EXPECT_EQ(memory_.progress().counter.load(), 0U) << "its tasks show that";
  memory_.progress().enter(runtime::Phase::loading);
  EXPECT_TRUE(happens([&] { return memory_.progress().counter.load() > 0; }));
}

TEST_F(RankMonitorTest, StartsBeforeItsConstructorReturns) {
  std::atomic<bool> started = false;
  RankMonitor::Setup with_start = setup();
  with_start.start = [&] {
    EXPECT_EQ(ticks_, 0);
    started = true;
  };
  const RankMonitor monitor(memory_, with_start);
  EXPECT_TRUE(started);
  EXPECT_TRUE(ticks());
}

TEST_F(RankMonitorTest, PassesOnWhatStartThrows) {
  RankMonitor::Setup with_start = setup();
  with_start.start = [] { fail(Exit::usage, "there is no such port"); };
  EXPECT_FAILURE(const RankMonitor monitor(memory_, with_start), Exit::usage, HasSubstr("there is no such port"));
  EXPECT_EQ(ticks_, 0);
}

TEST_F(RankMonitorTest, AnswersEachRequestForADumpOnce) {
  const RankMonitor monitor(memory_, setup());
  const auto answers = [&](std::uint32_t number) {
    int count = 0;
    for (const pb::NodeReport& report : sent_.all()) {
      if (report.dump_number() != number) continue;
      ++count;
      EXPECT_EQ(report.dump_size(), 1);
      EXPECT_EQ(report.dump(0).rank(), 0);
      EXPECT_EQ(report.dump(0).node(), memory_.map().of(0).name);
    }
    return count;
  };
  for (const std::uint32_t number : {1, 2}) {
    asked_ = number;
    EXPECT_TRUE(happens([&] { return answers(number) > 0; }));
    EXPECT_EQ(memory_.answer(0).number.load(), number);
    const std::size_t sent = sent_.all().size();
    EXPECT_TRUE(happens([&] { return sent_.all().size() > sent; }));
    EXPECT_EQ(answers(number), 1);
  }
}

// The lowest of the node's ranks whose processes run reports for all.
TEST(RankMonitorOfTwo, AnotherRankReportsOnceTheLowestNoLongerRuns) {
  comm::run_threads(2, [](comm::World& world) {
    NodeMemory memory(world);
    EXPECT_EQ(memory.ranks().size(), 2U) << memory.apart();
    AbortToken token;
    SentReports sent;
    RankMonitor::Setup setup;
    setup.token = &token;
    setup.receive = [&](const pb::NodeReport& report) { sent.add(report); };
    const auto reports_both = [&] {
      const std::vector<pb::NodeReport> reports = sent.all();
      return !reports.empty() && reports.back().ranks_size() == 2;
    };
    std::optional<RankMonitor> monitor;
    if (world.rank() == 0) monitor.emplace(memory, setup);
    (void)world.exchange("");
    if (world.rank() == 1) monitor.emplace(memory, setup);
    if (world.rank() == 0) {
      EXPECT_TRUE(happens(reports_both));
    }
    std::this_thread::sleep_for(1s);
    (void)world.exchange("");
    if (world.rank() == 0) monitor.reset();
    if (world.rank() == 1) {
      EXPECT_TRUE(sent.all().empty());
      EXPECT_TRUE(happens(reports_both));
    }
    (void)world.exchange("");
    EXPECT_FALSE(token.is_set()) << "without a timeout";
  });
}

// The tests below run in processes of their own, because a monitor that ends a run ends the process some seconds later.

bool is_ended(const AbortToken& token, const std::string& beginning) {
  if (!happens([&] { return token.is_set(); })) return false;
  const Failure failure = token.failure();
  return failure.rank == -1 && failure.code == Exit::failed && failure.self_reported &&
         failure.cause.starts_with(beginning);
}

// Ends the process with code 0 if the token is set as it should be, after `wait`.
[[noreturn]] void exit_after_a_verdict(std::chrono::seconds wait) {
  const auto world = comm::solo_world();
  NodeMemory memory(*world);
  AbortToken token;
  RankMonitor::Setup setup;
  setup.token = &token;
  const RankMonitor monitor(memory, setup);
  memory.give({"the link to n2 is down", 0});
  const bool right = is_ended(token, "the link to n2 is down");
  if (right) std::this_thread::sleep_for(wait);
  std::_Exit(right ? 0 : 9);
}

TEST(RankMonitorDeathTest, AVerdictEndsTheRun) {
  EXPECT_EXIT(exit_after_a_verdict(0s), testing::ExitedWithCode(0), "strata: the link to n2 is down");
}

TEST(RankMonitorDeathTest, AProcessThatDoesNotLeaveIsEnded) {
  EXPECT_EXIT(exit_after_a_verdict(60s), testing::ExitedWithCode(static_cast<int>(Exit::failed)), "the link to n2");
}

[[noreturn]] void exit_once_rank0_has_stalled() {
  comm::run_threads(2, [](comm::World& world) {
    NodeMemory memory(world);
    if (world.rank() == 0) std::this_thread::sleep_for(60s);  // without a monitor
    AbortToken token;
    RankMonitor::Setup setup;
    setup.token = &token;
    setup.timeout = 1;
    setup.rank0 = "rank 0 on n1";
    const RankMonitor monitor(memory, setup);
    std::_Exit(is_ended(token, "rank 0 on n1 has stalled: its process has not run for ") ? 0 : 9);
  });
  std::_Exit(9);
}

TEST(RankMonitorDeathTest, TheNodeEndsIfRank0HasStalled) {
  EXPECT_EXIT(exit_once_rank0_has_stalled(), testing::ExitedWithCode(0), "strata: rank 0 on n1 has stalled");
}

}  // namespace
}  // namespace strata::launcher::control
