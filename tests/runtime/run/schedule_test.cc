#include "runtime/run/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

double lr(Decay name, std::int64_t warmup, double ratio, std::int64_t max_steps, std::int64_t step) {
  return learning_rate({.name = name, .warmup_steps = warmup, .min_lr_ratio = ratio}, 2.0, max_steps, step);
}

TEST(ScheduleTest, WarmsUpLinearly) {
  for (const Decay name : {Decay::constant, Decay::linear, Decay::cosine, Decay::wsd}) {
    EXPECT_DOUBLE_EQ(lr(name, 4, 0.1, 10, 1), 0.5);
    EXPECT_DOUBLE_EQ(lr(name, 4, 0.1, 10, 3), 1.5);
    EXPECT_DOUBLE_EQ(lr(name, 4, 0.1, 10, 4), 2.0);
    EXPECT_DOUBLE_EQ(lr(name, 100, 0.1, 10, 10), 0.2);  // a run that ends inside its warm-up
  }
}

TEST(ScheduleTest, DecaysToTheRatioAtTheLastStep) {
  EXPECT_DOUBLE_EQ(lr(Decay::constant, 4, 0.1, 10, 10), 2.0);
  for (const Decay name : {Decay::linear, Decay::cosine, Decay::wsd}) EXPECT_DOUBLE_EQ(lr(name, 4, 0.1, 10, 10), 0.2);
  EXPECT_DOUBLE_EQ(lr(Decay::linear, 0, 0.0, 1, 1), 0.0);
}

TEST(ScheduleTest, MatchesTheFormulasInBetween) {
  EXPECT_DOUBLE_EQ(lr(Decay::linear, 0, 0.1, 100, 50), 1.1);   // 2 * (1 - 0.9 / 2)
  EXPECT_DOUBLE_EQ(lr(Decay::linear, 20, 0.0, 100, 40), 1.5);  // t = 1/4
  EXPECT_DOUBLE_EQ(lr(Decay::cosine, 0, 0.1, 100, 50), 1.1);   // the half is where cos is 0
  EXPECT_DOUBLE_EQ(lr(Decay::cosine, 0, 0.0, 3, 1), 1.5);      // cos(60 degrees) = 1/2
  EXPECT_DOUBLE_EQ(lr(Decay::wsd, 0, 0.1, 100, 80), 2.0);
  EXPECT_DOUBLE_EQ(lr(Decay::wsd, 0, 0.1, 100, 90), 1.1);  // the middle of the last fifth
}

TEST(LossScalerTest, GrowsAndBacksOffAsGradScaler) {
  LossScaler scaler(true, {.initial_scale = 1024, .growth_interval = 3});
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.update(true);  // restarts the count
  EXPECT_EQ(scaler.scale(), 512);
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 512);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
  scaler.update(true);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 256);
}

TEST(LossScalerTest, NeverGrowsToInfinity) {
  LossScaler scaler(true, {.initial_scale = 0x1p127, .growth_interval = 1});
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1p127f);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
}

TEST(LossScalerTest, IsExhaustedWhenItHasNoInverse) {
  LossScaler scaler(true, {.initial_scale = 0x1p-125});
  scaler.update(true);
  EXPECT_FALSE(scaler.exhausted());
  scaler.update(true);
  EXPECT_TRUE(scaler.exhausted());
}

TEST(LossScalerTest, OffInOtherPrecisions) {
  LossScaler scaler(false, {});
  scaler.update(true);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScalerTest, ContinuesFromItsSavedState) {
  LossScaler first(true, {.initial_scale = 8, .growth_interval = 2}), second(true, {.growth_interval = 2});
  first.update(false);
  second.restore(first.state());
  first.update(false);
  second.update(false);
  EXPECT_EQ(second.scale(), 16);
  EXPECT_EQ(first.state(), second.state());
}

// The loss scale of the first steps is far too high: every rank skips them, then the model learns.
TEST(LossScalerTest, OverflowIsSkippedByAllRanks) {
  const tests::ScratchFolder folder;
  {
    std::ofstream file(folder.path() / "tokens.bin", std::ios::binary);
    for (int i = 0; i < 600; ++i) file.put(static_cast<char>(i % 97)).put(0);
  }
  std::optional<Trained> first;
  const std::string drive = fmt::format("memory.nvme={}", folder.path().string());
  for (const auto& [ranks, optimizer] :
       {std::pair(1, "device"), std::pair(2, "device"), std::pair(1, "nvme"), std::pair(2, "nvme")}) {
    const Trained trained = train_in_threads(
        std::nullopt,
        {"model.preset=tiny-gpt2", "model.config.n_layer=1", "model.config.n_embd=32", "model.config.n_inner=512",
         "model.config.n_head=2", "model.config.vocab_size=128", "model.config.n_positions=16", "data.seq_len=16",
         "training.max_steps=24", "training.precision=fp16", "fp16.initial_scale=4294967296", "fp16.growth_interval=4",
         fmt::format("zero.stage={}", ranks == 1 ? 0 : 3), fmt::format("zero.optimizer={}", optimizer), drive,
         fmt::format("data.train={}", (folder.path() / "tokens.bin").string()),
         fmt::format("training.gradient_accumulation_steps={}", 2 / ranks)},
        ranks);
    int skipped = 0;
    double scale = 4294967296.0;
    for (const StepReport& step : trained.steps) {
      if (step.skipped) {
        ++skipped;
        EXPECT_EQ(step.loss_scale, scale) << "step " << step.step;
        scale = step.loss_scale / 2;
      } else if (step.loss_scale != scale) {
        scale = step.loss_scale;
      }
    }
    EXPECT_GT(skipped, 2);
    EXPECT_FALSE(trained.steps.back().skipped && trained.steps[trained.steps.size() - 2].skipped);
    if (!first) first = trained;
    EXPECT_EQ(trained.loss_hex, first->loss_hex);
    EXPECT_EQ(trained.weights_hash, first->weights_hash);
  }
}

}  // namespace

}  // namespace strata::runtime
