#include "runtime/job/search/candidate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kStateBytesUnlimited = std::numeric_limits<std::size_t>::max();

// Every refused case does not fit. With exactly the memory of a plan, nothing is refused, but other cases are.
TEST(StateBytes, RefuseNoPlanThatFits) {
  std::mt19937 random(7);
  const auto pick = [&](const std::vector<const char*>& values) { return values[random() % values.size()]; };
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<std::string> sets = {"memory.nvme=/none"};
    const auto set = [&](const char* key, const auto& value) { sets.push_back(fmt::format("{}={}", key, value)); };
    for (const char* key : {"zero.parameters", "zero.gradients", "zero.optimizer"})
      set(key, pick({"device", "host", "nvme"}));
    set("zero.stage", random() % 4);
    set("training.precision", pick({"fp32", "bf16"}));
    set("training.gradient_accumulation_steps", 1 + random() % 2);
    set("optimizer.name", pick({"adamw", "adamw8bit", "lion", "sgd"}));
    const int ranks = 1 << random() % 3;
    const Job job = tiny_job(sets, ranks);
    Capacity capacity{{}, kStateBytesUnlimited, {}};
    for (std::size_t tier = 0; tier < kTiers; ++tier) capacity.tier[tier] = job.plan.memory[tier].peak;
    EXPECT_TRUE(state_may_fit(job.recipe, job.plan.layout, capacity)) << fmt::format("{}", i);
    capacity.together = capacity.tier[0] + capacity.tier[1];
    EXPECT_TRUE(state_may_fit(job.recipe, job.plan.layout, capacity)) << fmt::format("{}", i);
    for (std::size_t& bytes : capacity.tier) bytes /= 4;
    refused += state_may_fit(job.recipe, job.plan.layout, capacity) ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

// At least one stage of a pipeline has an equal part of the state, or more.
TEST(StateBytes, RefuseNoMeshThatFits) {
  for (const char* mesh : {"parallel.stages=2", "parallel.stages=4", "parallel.tensor=2"})
    for (const char* zero : {"zero.stage=1", "zero.stage=3"}) {
      SCOPED_TRACE(fmt::format("{}, {}", mesh, zero));
      const Job job = tiny_job({mesh, zero, "model.config.n_layer=6", "zero.optimizer=host"}, 8);
      const Capacity unlimited{{kStateBytesUnlimited, kStateBytesUnlimited, kStateBytesUnlimited},
                               kStateBytesUnlimited};
      const Memory needed = memory_of_stages(job, unlimited).value();
      Capacity capacity{{needed[0].peak, needed[1].peak, needed[2].peak}, kStateBytesUnlimited};
      const Layout layout = layout_of(job, 8);
      EXPECT_TRUE(state_may_fit(job.recipe, layout, capacity));
      capacity.tier[1] /= 8;
      EXPECT_FALSE(state_may_fit(job.recipe, layout, capacity));
    }
}

// A layout without a plan is that of the plan, on every mesh.
TEST(StateBytes, ALayoutNeedsNoPlan) {
  for (const char* mesh : {"", "parallel.stages=2", "parallel.tensor=2", "parallel.tensor_shards=4"}) {
    std::vector<std::string> sets = {"zero.stage=3", "optimizer.name=adamw8bit", "training.freeze=*.ln_1.*"};
    if (*mesh) sets.emplace_back(mesh);
    const Job job = tiny_job(sets, 4);
    const Layout layout = layout_of(job, 4);
    EXPECT_EQ(layout.mesh.data(), job.plan.layout.mesh.data()) << mesh;
    ASSERT_EQ(layout.units.size(), job.plan.layout.units.size()) << mesh;
    for (std::size_t unit = 0; unit < layout.units.size(); ++unit)
      for (const PoolKind pool : kPools)
        EXPECT_EQ(layout.units[unit].pool(pool).shards.size(), job.plan.layout.units[unit].pool(pool).shards.size())
            << mesh;
  }
}

// Each rank would update a trillion parameters outside of the device, with millions of tasks.
TEST(StateBytes, UpdatesThatNoStepHidesAreNotPlanned) {
  const auto recipe_with = [](const char* stage, const char* tier) {
    const std::vector<std::string> sets = {"model.preset=gpt2-1558m",
                                           "model.config.n_embd=25600",
                                           "model.config.n_layer=128",
                                           "data.seq_len=64",
                                           "training.max_steps=1",
                                           "memory.nvme=/none",
                                           std::string("zero.stage=") + stage,
                                           std::string("zero.optimizer=") + tier};
    return load_recipe(std::nullopt, sets);
  };
  const auto model =
      models::make_model(open_workload(recipe_with("0", "nvme")).config(), {1, 64, device::DType::bf16, 1});
  const Layout alone = make_layout(*model, Mesh{1}), shared = make_layout(*model, Mesh{64});
  Capacity unlimited{{}, kStateBytesUnlimited, {}};
  unlimited.tier.fill(kStateBytesUnlimited);
  EXPECT_FALSE(is_worth_planning(recipe_with("0", "nvme"), shared, unlimited));
  EXPECT_FALSE(is_worth_planning(recipe_with("0", "host"), shared, unlimited));
  EXPECT_TRUE(is_worth_planning(recipe_with("1", "nvme"), shared, unlimited));
  EXPECT_TRUE(is_worth_planning(recipe_with("0", "device"), shared, unlimited));
  EXPECT_TRUE(is_worth_planning(recipe_with("0", "nvme"), alone, unlimited)) << "there is no other rank to share with";
  unlimited.tier[2] = std::size_t{1} << 40;
  EXPECT_FALSE(is_worth_planning(recipe_with("0", "nvme"), alone, unlimited)) << "the masters alone need 4 TB";
}

}  // namespace
}  // namespace strata::runtime
