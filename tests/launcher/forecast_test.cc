#include "launcher/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/runtime/forecast/even_machine.h"

namespace strata::launcher {
namespace {

// Settings are planned with the same data as the recipe. For short documents in long sequences, attention is cheap.
TEST(GainsTest, PlansSettingsWithTheRecipesData) {
  const tests::TokenFolder folder(130);
  (void)folder.write("t.bin", std::vector<std::uint64_t>(200, 4));
  const std::vector<std::string> sets = {
      "model.preset=tiny-gpt2",        "model.config.vocab_size=130",
      "model.config.n_positions=1024", "data.train=" + (folder.folder().path() / "t.bin").string(),
      "data.packing=documents",        "data.seq_len=512",
      "training.micro_batch_size=1",   "training.recompute=block"};
  runtime::Workload workload = runtime::open_workload(runtime::load_recipe({}, sets));
  (void)runtime::resolve_workload(workload, false);
  ASSERT_GT(workload.data.mean_squares, 0);
  const runtime::Capacity capacity = runtime::capacity_of({.device = 1 << 30, .host = 1 << 30}, 1);
  runtime::Machine machine = runtime::even_machine();
  machine.threads = 1;
  machine.attention_gflop_per_s.fill(1);
  const runtime::Job job = runtime::make_job(workload, 1, capacity);
  const std::vector<Gain> found = gains({}, sets, job, capacity, machine, 1);
  const auto gain =
      std::find_if(found.begin(), found.end(), [](const Gain& one) { return one.key == "training.recompute"; });
  ASSERT_NE(gain, found.end());
  workload.recipe.training.recompute = {};
  EXPECT_EQ(gain->tokens_per_s, forecast(runtime::make_job(workload, 1, capacity), machine, 1).tokens_per_s);
}

}  // namespace
}  // namespace strata::launcher
