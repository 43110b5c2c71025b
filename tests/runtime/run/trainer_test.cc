#include "runtime/run/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/execute/executor.h"
#include "tests/runtime/tiny_job.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

// What `strata ctl dump` and the watching between nodes read: tasks of the plan, in their lanes, of the steps that are
// run, the host's own among them.
TEST(TrainerTest, PublishesThePlacesOfItsLanes) {
  const tests::ScratchFolder folder;
  const auto data = folder.write("t.bin", std::string(4000, '\1'));
  const std::vector<std::string> sets = {"training.max_steps=4", "data.train=" + data.string()};
  const StepPlan plan = tiny_job(sets, 1).plan;
  const auto places = std::make_unique<RankPlaces>();
  constexpr std::int64_t kBefore = 100;
  std::set<LaneId> lanes;
  std::int64_t step = 0;
  std::vector<std::int64_t> asked;  // when each step was
  const auto look = [&](Trainer& trainer) {
    if (step == 0) trainer.executor().publish(*places, kBefore);
    const std::uint64_t count = places->done_count.load();
    for (std::uint64_t n = count > RankPlaces::kDone ? count - RankPlaces::kDone : 0; n < count; ++n) {
      const auto i = n % RankPlaces::kDone;
      const LanePlace place = unpacked(places->done[i].place.load());
      ASSERT_GE(place.task, 0);
      ASSERT_LT(static_cast<std::size_t>(place.task), plan.tasks.size());
      const LaneId lane = plan.tasks[static_cast<std::size_t>(place.task)].lane;
      EXPECT_EQ(places->done[i].lane.load(), static_cast<std::uint32_t>(lane));
      // Not from the end of what the lane did before.
      if (plan.tasks[static_cast<std::size_t>(place.task)].kind == TaskKind::host_write) {
        EXPECT_GE(places->done[i].begin.load(), asked.at(static_cast<std::size_t>(place.step - kBefore - 1)));
      }
      EXPECT_GE(places->done[i].end.load(), places->done[i].begin.load());
      EXPECT_GT(place.step, kBefore);
      EXPECT_LE(place.step, kBefore + step);
      lanes.insert(lane);
    }
    ++step;
    asked.push_back(std::chrono::steady_clock::now().time_since_epoch().count());
  };
  (void)train_in_threads({}, {"model.preset=tiny-gpt2", "data.seq_len=16", sets[0], sets[1]}, 1, {}, 0, 0, look);
  EXPECT_EQ(step, 4);
  EXPECT_TRUE(lanes.contains(LaneId::host));
  EXPECT_TRUE(lanes.contains(LaneId::compute));
}

}  // namespace
}  // namespace strata::runtime
