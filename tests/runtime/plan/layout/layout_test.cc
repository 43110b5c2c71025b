#include "runtime/plan/layout/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/fake_model.h"

namespace strata::runtime {
namespace {

using device::StorageFormat;

Job job_of(const std::vector<std::string>& sets, int ranks) {
  const Recipe recipe = load_recipe(std::nullopt, sets);
  return make_job(open_workload(recipe), ranks, {std::size_t{1} << 50, 0, 0});
}

std::size_t optimizer_bytes(const StepPlan& plan) {
  return plan.memory[0].by_kind[static_cast<std::size_t>(Kind::optimizer)];
}

TEST(Layout, MomentBytesAddUp) {
  const FakeModel model({{{2048, 300}, {5000, 256, 9000}, {256, 5000}}, 1, 1, 1, 1, false});
  for (const StorageFormat format : {StorageFormat::fp32, StorageFormat::bf16, StorageFormat::block8}) {
    const Layout layout = make_layout(model, {2}, format);
    for (const UnitLayout& u : layout.units) {
      std::size_t sum = 0;
      for (std::size_t at = 0; at < u.padded(); at += 256) {
        EXPECT_EQ(u.moment_bytes(0, at), sum);
        sum += u.moment_bytes(at, at + 256);
      }
      EXPECT_EQ(u.moment_bytes(0, u.padded()), sum);
      EXPECT_TRUE(format == StorageFormat::block8 || sum == device::stored_bytes(format, u.padded()));
    }
  }
}

TEST(Layout, EmbeddingsAndSmallTensorsStayInFp32) {
  const Job job = job_of({"model.preset=gpt2-124m", "optimizer.name=adamw8bit"}, 1);
  for (std::size_t unit = 0; unit < job.model->units.size(); ++unit)
    for (const runtime::TensorRange& range : job.plan.layout.units[unit].ranges) {
      const models::Parameter& p = job.model->units[unit]->parameters()[range.parameter];
      const bool stays = unit == 0 || p.shape.size() == 1;
      EXPECT_EQ(range.moments, stays ? StorageFormat::fp32 : StorageFormat::block8) << p.name;
    }
}

// Moments are stored in 8 bits from 4,096 elements on: here a block's matrices have 4,095, then 4,096.
TEST(Layout, EightBitsBeginAt4096Elements) {
  for (const auto& [hidden, inner, format] :
       {std::tuple(65, 63, StorageFormat::fp32), std::tuple(64, 64, StorageFormat::block8)}) {
    const Job job =
        job_of({"model.preset=tiny-llama", "model.config.num_attention_heads=1", "model.config.num_key_value_heads=1",
                "model.config.head_dim=8", fmt::format("model.config.hidden_size={}", hidden),
                fmt::format("model.config.intermediate_size={}", inner), "optimizer.name=adamw8bit"},
               1);
    int seen = 0;
    for (const runtime::TensorRange& range : job.plan.layout.units[1].ranges) {
      const models::Parameter& p = job.model->units[1]->parameters()[range.parameter];
      if (p.name.find("mlp.down") == std::string::npos) continue;
      EXPECT_EQ(range.moments, format) << p.name << " of " << p.size();
      ++seen;
    }
    EXPECT_EQ(seen, 1);
  }
}

// Moments alone: optimizer bytes less those of the fp32 masters.
TEST(Layout, EightBitMomentsTakeThreeTenths) {
  for (const int ranks : {1, 8}) {
    std::vector<std::string> sets = {"model.preset=gpt2-1558m", "zero.stage=1"};
    const StepPlan fp32 = job_of(sets, ranks).plan;
    std::size_t masters = 0;
    for (std::size_t unit = 0; unit < fp32.layout.units.size(); ++unit) masters += fp32.parts_of(unit).size() * 4;
    sets.emplace_back("optimizer.name=adamw8bit");
    const double ratio = static_cast<double>(optimizer_bytes(job_of(sets, ranks).plan) - masters) /
                         static_cast<double>(optimizer_bytes(fp32) - masters);
    EXPECT_LE(ratio, ranks == 1 ? 0.30 : 0.32) << ranks << " ranks: each plans for the one that holds most in fp32";
    EXPECT_GT(ratio, 0.26);
  }
}

TEST(Layout, OneMomentNeedsHalf) {
  const std::size_t two = optimizer_bytes(job_of({"model.preset=gpt2-124m"}, 1).plan);
  for (const char* name : {"lion", "sgd"}) {
    const StepPlan plan = job_of({"model.preset=gpt2-124m", fmt::format("optimizer.name={}", name)}, 1).plan;
    EXPECT_EQ(optimizer_bytes(plan) * 3, two * 2) << "master and one moment of fp32";
  }
}

}  // namespace
}  // namespace strata::runtime
