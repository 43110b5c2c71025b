#include "runtime/run/trainer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/execute/executor.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/tiny_job.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

// `strata ctl dump` and the watch between nodes read this: tasks of the plan in their lanes, of the steps that run,
// including the host's tasks.
TEST(TrainerTest, PublishesTheProgressOfItsLanes) {
  const tests::ScratchFolder folder;
  const auto data = folder.write("t.bin", std::string(4000, '\1'));
  const std::vector<std::string> sets = {"training.max_steps=4", "data.train=" + data.string()};
  const StepPlan plan = tiny_job(sets, 1).plan;
  const auto progress = std::make_unique<RankProgress>();
  constexpr std::int64_t kBefore = 100;
  std::set<LaneId> lanes;
  std::int64_t step = 0;
  std::vector<std::int64_t> asked;  // when each step was
  const auto look = [&](Trainer& trainer) {
    if (step == 0) trainer.executor().publish(*progress, kBefore);
    const std::uint64_t count = progress->done_count.load();
    for (std::uint64_t n = count > RankProgress::kDone ? count - RankProgress::kDone : 0; n < count; ++n) {
      const auto i = n % RankProgress::kDone;
      const LanePlace place = unpacked(progress->done[i].place.load());
      ASSERT_GE(place.task, 0);
      ASSERT_LT(static_cast<std::size_t>(place.task), plan.tasks.size());
      const LaneId lane = plan.tasks[static_cast<std::size_t>(place.task)].lane;
      EXPECT_EQ(progress->done[i].lane.load(), static_cast<std::uint32_t>(lane));
      // The time does not count from the end of the lane's previous task.
      if (plan.tasks[static_cast<std::size_t>(place.task)].kind == TaskKind::host_write) {
        EXPECT_GE(progress->done[i].begin.load(), asked.at(static_cast<std::size_t>(place.step - kBefore - 1)));
      }
      EXPECT_GE(progress->done[i].end.load(), progress->done[i].begin.load());
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

// Two ranks at ZeRO-3, whose weights can be spoiled between steps.
class NotFinite : public testing::Test {
 protected:
  void train(const std::string& precision, int steps, const std::function<void(Trainer&, int rank)>& run) {
    const Recipe recipe = load_recipe(
        std::nullopt,
        std::vector<std::string>{"model.preset=tiny-gpt2", "model.config.n_layer=3", "model.config.n_embd=32",
                                 "model.config.n_head=2", "model.config.vocab_size=128", "model.config.n_positions=16",
                                 "data.seq_len=16", fmt::format("training.max_steps={}", steps),
                                 "training.precision=" + precision, "zero.stage=3", "data.train=" + tokens_.string()});
    comm::run_threads(2, [&](comm::World& world) {
      const Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
      Trainer trainer(job, world, 1);
      trainer.load_initial_weights(1);
      run(trainer, world.rank());
    });
  }

  // Sets an element of rank 1's shard of block 1's parameters, and returns its previous value.
  static std::uint16_t exchange_weight(Trainer& trainer, int rank, std::uint16_t value) {
    if (rank != 1) return 0;
    std::vector<std::uint16_t> block(kShardAlignment);
    const auto bytes = std::as_writable_bytes(std::span(block));
    trainer.executor().storage().read_state(2, StateKind::parameters, 0, bytes);
    std::swap(block[100], value);
    trainer.executor().storage().write_state(2, StateKind::parameters, 0, bytes);
    return value;
  }

  static constexpr std::uint16_t kInfinityBf16 = 0x7f80, kInfinityFp16 = 0x7c00;
  const tests::ScratchFolder folder_;
  const std::filesystem::path tokens_ = folder_.write("tokens.bin", [] {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += {static_cast<char>(i % 97), '\0'};
    return text;
  }());
};

TEST_F(NotFinite, StopsBf16BeforeTheUpdateNamingStepAndUnit) {
  std::array<std::string, 2> errors;
  train("bf16", 2, [&](Trainer& trainer, int rank) {
    (void)trainer.step(false);
    const std::string before = trainer.weights_hash();
    exchange_weight(trainer, rank, kInfinityBf16);
    try {
      (void)trainer.step(false);
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.reason(), (EndReason{EndReason::Kind::not_finite, 2}));
      errors[static_cast<std::size_t>(rank)] = error.what();
    }
    EXPECT_EQ(trainer.weights_hash(), before) << "stopped before the update";
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("step 2"), HasSubstr("block 1")));
}

// A forward that is not finite says nothing about the loss scale: the step is skipped, the scale and its count of good
// steps stay, and training continues. It is reported once.
TEST_F(NotFinite, SkipsAnFp16ForwardWithoutChangingTheScale) {
  train("fp16", 9, [](Trainer& trainer, int rank) {
    (void)trainer.step(false);
    int said = 0;
    for (int time = 0; time < 2; ++time) {  // twice two in a row
      const Progress before = trainer.progress();
      const std::string weights = trainer.weights_hash();
      const std::uint16_t weight = exchange_weight(trainer, rank, kInfinityFp16);
      for (int n = 0; n < 2; ++n) {
        const StepReport report = trainer.step(false);
        EXPECT_TRUE(report.skipped);
        EXPECT_FALSE(std::isfinite(report.loss));
        if (report.note.empty()) continue;
        ++said;
        EXPECT_THAT(report.note, AllOf(HasSubstr("step 2 "), HasSubstr("block 1"), HasSubstr("training.precision")));
      }
      exchange_weight(trainer, rank, weight);
      EXPECT_EQ(trainer.weights_hash(), weights);
      EXPECT_EQ(trainer.progress().loss_scale, before.loss_scale);
      EXPECT_EQ(trainer.progress().updates, before.updates);
      EXPECT_EQ(trainer.progress().step, before.step + 2);
      EXPECT_EQ(trainer.progress().next_micro_batch, before.next_micro_batch + 4);
      EXPECT_FALSE(trainer.step(false).skipped);
      EXPECT_EQ(trainer.progress().loss_scale.growth_tracker, before.loss_scale.growth_tracker + 1);
    }
    EXPECT_EQ(said, 1);
    EXPECT_EQ(trainer.nonfinite_forwards(), 4);
  });
}

TEST_F(NotFinite, EndsFp16AtTheThirdForwardInARow) {
  std::array<std::string, 2> errors;
  train("fp16", 9, [&](Trainer& trainer, int rank) {
    (void)trainer.step(false);
    const std::string before = trainer.weights_hash();
    exchange_weight(trainer, rank, kInfinityFp16);
    (void)trainer.step(false);
    EXPECT_THAT(trainer.step(false).note, IsEmpty());
    try {
      (void)trainer.step(false);
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.reason(), (EndReason{EndReason::Kind::overflow, 4}));
      errors[static_cast<std::size_t>(rank)] = error.what();
    }
    EXPECT_EQ(trainer.weights_hash(), before);
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("step 4"), HasSubstr("3 steps in a row"), HasSubstr("block 1"),
                               HasSubstr("the loss scale does not affect forward")));
}

}  // namespace
}  // namespace strata::runtime
