#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "launcher/measure/memory/memory.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"

namespace strata::launcher {
namespace {

using runtime::Recipe;
using runtime::Tier;
using testing::AllOf;
using testing::HasSubstr;
using Kind = runtime::Recompute::Kind;

std::size_t settings_count(const std::vector<std::string>& only, bool has_drive = true) {
  return memory_settings(only, has_drive).size();
}

TEST(MemorySettingTest, ListsEveryCombinationOnce) {
  const auto all = memory_settings({}, true);
  std::set<std::tuple<int, int, int, int>> seen;
  for (const MemorySetting& s : all)
    seen.insert(
        {static_cast<int>(s.precision), static_cast<int>(s.recompute), s.accumulation, static_cast<int>(s.optimizer)});
  EXPECT_EQ(all.size(), 81u);
  EXPECT_EQ(seen.size(), 81u);
  // Each setting is followed by the same one with the optimizer in another tier.
  EXPECT_EQ(all[0].optimizer, Tier::device);
  EXPECT_EQ(all[1].optimizer, Tier::host);
  EXPECT_EQ(all[2].optimizer, Tier::nvme);
  EXPECT_TRUE(all[0].same_numerics(all[2]));
  EXPECT_EQ(settings_count({}, false), 54u) << "without a drive";
}

TEST(MemorySettingTest, SelectsSettings) {
  EXPECT_EQ(settings_count({"precision=bf16"}), 27u);
  EXPECT_EQ(settings_count({"precision=bf16,fp32", "recompute=none", "optimizer=device"}), 6u);
  EXPECT_EQ(settings_count({"accumulation=2", "recompute=none,block", "precision=fp16", "optimizer=host"}), 2u);
  for (const char* wrong : {"precision", "precision=", "precision=fp8", "speed=1", "accumulation=3", "=1"})
    EXPECT_FAILURE(settings_count({wrong}), Exit::usage,
                   AllOf(HasSubstr(std::string("--only ") + wrong + ":"), HasSubstr("recompute=none,sqrt,block")));
  EXPECT_FAILURE(settings_count({"optimizer=nvme"}, false), Exit::usage, HasSubstr("needs memory.nvme"));
}

TEST(MemorySettingTest, KeepsTheStepAndSavesNothing) {
  const std::vector<std::string> sets = {
      "model.preset=tiny-gpt2",    "training.global_batch_size=8", "training.micro_batch_size=2",
      "checkpoint.dir=/tmp/x",     "checkpoint.every=1",           "report.dir=/tmp/y",
      "evaluation.at_start=true",  "training.recompute=block",     "zero.activations=host",
      "optimizer.learning_rate=1", "zero.optimizer=host"};
  const Recipe given = runtime::load_recipe({}, sets);
  EXPECT_EQ(batch_of(given), 8);
  const Recipe r = recipe_with(given, {device::DType::fp16, Kind::none, 4, Tier::device}, 8, 7);
  EXPECT_EQ(r.training.precision, device::DType::fp16);
  EXPECT_EQ(r.training.recompute.kind, Kind::none);
  EXPECT_EQ(r.training.micro_batch_size, 2);
  EXPECT_EQ(r.accumulation_steps(1), 4);
  EXPECT_EQ(r.training.max_steps, 7);
  EXPECT_EQ(r.zero.optimizer, Tier::device);
  EXPECT_EQ(r.zero.activations, Tier::device) << "without recomputation, nothing moves";
  EXPECT_EQ(recipe_with(given, {device::DType::fp16, Kind::block, 4, Tier::device}, 8, 7).zero.activations, Tier::host);
  EXPECT_FALSE(r.checkpoint.dir);
  EXPECT_FALSE(r.evaluation.asked());
  EXPECT_FALSE(r.report.dir);
  EXPECT_EQ(r.control.listen, "off");
  EXPECT_EQ(r.optimizer.learning_rate, 1);
  // The file is a recipe, too.
  const std::string text = runtime::to_toml(r);
  EXPECT_THAT(text, AllOf(HasSubstr("training.gradient_accumulation_steps = 4\n"),
                          testing::Not(HasSubstr("global_batch_size")), testing::Not(HasSubstr("checkpoint"))));
  EXPECT_FAILURE(recipe_with(given, {device::DType::fp32, Kind::none, 4, Tier::device}, 6, 7), Exit::usage,
                 AllOf(HasSubstr("6 sequences"), HasSubstr("4 micro-batches"), HasSubstr("--only accumulation")));
}

TEST(MemorySettingTest, UsesTheRecipesBatch) {
  const auto batch = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {"model.preset=tiny-gpt2"};
    sets.insert(sets.end(), more.begin(), more.end());
    return batch_of(runtime::load_recipe({}, sets));
  };
  EXPECT_EQ(batch({}), 4) << "a batch that each accumulation divides";
  EXPECT_EQ(batch({"training.micro_batch_size=6"}), 6);
  EXPECT_EQ(batch({"training.micro_batch_size=6", "training.gradient_accumulation_steps=2"}), 12);
}

}  // namespace
}  // namespace strata::launcher
