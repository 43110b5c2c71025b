#include "runtime/execute/rank_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "runtime/execute/executor.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

TEST(LanePlaceTest, IsOneNumber) {
  for (const LanePlace& place : {LanePlace{}, LanePlace{0, 0, true}, LanePlace{120, 7, false},
                                 LanePlace{(std::int64_t{1} << 31), (1 << 30) - 1, true}})
    EXPECT_EQ(unpacked(packed(place)), place);
  EXPECT_EQ(packed({}), 0U) << "the value of zeroed memory";
}

class RankProgressTest : public testing::Test {
 protected:
  Job job_ = tiny_job({"training.max_steps=4", "training.precision=fp32"}, 1);
  std::unique_ptr<RankProgress> progress_ = std::make_unique<RankProgress>();
  LanePlace of(LaneId lane) const { return unpacked(progress_->lanes[static_cast<std::size_t>(lane)].place.load()); }
};

TEST_F(RankProgressTest, ReportsALanesCurrentTaskAndProgress) {
  ProgressPublisher publisher(job_.plan, *progress_, 10);
  std::size_t task = 0;
  while (job_.plan.tasks[task].lane != LaneId::compute) ++task;
  publisher.begin(task, 0, 1000);
  EXPECT_EQ(of(LaneId::compute), (LanePlace{11, static_cast<int>(task), true}));
  EXPECT_EQ(progress_->lanes[static_cast<std::size_t>(LaneId::compute)].since.load(), 1000);
  publisher.end(task, 0, 1300);
  EXPECT_EQ(of(LaneId::compute), (LanePlace{11, static_cast<int>(task), false}));
  EXPECT_EQ(progress_->done_count.load(), 1U);
  EXPECT_EQ(progress_->done[0].end.load() - progress_->done[0].begin.load(), 300);
  publisher.stepped();
  EXPECT_EQ(progress_->step.load(), 11);
  EXPECT_EQ(progress_->compute.load(), 300);
}

TEST_F(RankProgressTest, LearnsATasksUsualTime) {
  ProgressPublisher publisher(job_.plan, *progress_, 0);
  std::int64_t now = 1;
  const auto run = [&](std::int64_t takes) {
    publisher.begin(0, 0, now);
    publisher.end(0, 0, now += takes);
  };
  for (int i = 0; i < 200; ++i) run(i % 10 == 9 ? 1'000'000 : 1000);
  publisher.begin(0, 0, now);
  const auto lane = static_cast<std::size_t>(job_.plan.tasks[0].lane);
  EXPECT_GT(progress_->lanes[lane].typical.load(), 700);
  EXPECT_LT(progress_->lanes[lane].typical.load(), 1500);
}

TEST_F(RankProgressTest, LearnsAStepsUsualTime) {
  ProgressPublisher publisher(job_.plan, *progress_, 0);
  std::size_t write = 0;
  while (job_.plan.tasks[write].kind != TaskKind::host_write) ++write;
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  publisher.stepped();
  EXPECT_EQ(progress_->typical.load(), 0) << "no task was begun";
  for (int i = 0; i < 50; ++i) {
    publisher.begin(write, i, now() - (i % 10 == 9 ? 1'000'000 : 1000) * std::int64_t{1'000'000});
    publisher.stepped();
  }
  EXPECT_GT(progress_->typical.load(), 700'000'000);
  EXPECT_LT(progress_->typical.load(), 2'000'000'000);
}

TEST_F(RankProgressTest, AnExecutorPublishesEveryTaskOfEveryLane) {
  const auto world = comm::solo_world();
  Executor executor(job_.plan, *job_.model, *world, {}, 1);
  executor.publish(*progress_, 5);
  (void)executor.step({}, 0);
  (void)executor.step({}, 0);
  executor.synchronize();
  EXPECT_EQ(progress_->step.load(), 7);
  EXPECT_GT(progress_->compute.load(), 0);
  EXPECT_GT(progress_->typical.load(), 0);
  std::vector<int> last(kLanes, -1);
  std::size_t always = 0;
  for (std::size_t t = 0; t < job_.plan.tasks.size(); ++t)
    if (job_.plan.tasks[t].when == When::always) {
      last[static_cast<std::size_t>(job_.plan.tasks[t].lane)] = static_cast<int>(t);
      ++always;
    }
  EXPECT_EQ(progress_->done_count.load(), 2 * always);
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (last[lane] >= 0) {
      EXPECT_EQ(of(static_cast<LaneId>(lane)), (LanePlace{7, last[lane], false})) << kLaneNames[lane];
      EXPECT_GT(progress_->lanes[lane].since.load(), 0);
    }
}

TEST_F(RankProgressTest, APhaseRestartsItsCount) {
  progress_->enter(Phase::loading);
  progress_->count(3);
  EXPECT_EQ(progress_->counter.load(), 3U);
  progress_->enter(Phase::writing);
  EXPECT_EQ(progress_->counter.load(), 0U);
  EXPECT_GT(progress_->phase_since.load(), 0);
}

}  // namespace
}  // namespace strata::runtime
