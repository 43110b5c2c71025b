#include "launcher/forecast.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/commands/plan/plan.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/runtime/forecast/even_machine.h"
#include "tests/runtime/tiny_job.h"

namespace strata::launcher {
namespace {

// Settings are planned with the same data as the recipe. For short documents in long sequences, attention is cheap.
TEST(SpeedupsTest, PlansSettingsWithTheRecipesData) {
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
  const double now = forecast(job, machine, 1).tokens_per_s;
  const std::vector<Speedup> found = find_speedups({}, sets, job, now, capacity, machine, 1).faster;
  const auto speedup = std::find_if(found.begin(), found.end(),
                                    [](const Speedup& one) { return one.changes[0].first == "training.recompute"; });
  ASSERT_NE(speedup, found.end());
  workload.recipe.training.recompute = {};
  EXPECT_EQ(speedup->tokens_per_s, forecast(runtime::make_job(workload, 1, capacity), machine, 1).tokens_per_s);
}

// A model with 6 units, on nodes of two ranks each.
class Settings : public testing::Test {
 protected:
  Settings() {
    machine_.ranks = machine_.threads = 2;
    machine_.collectives = {10, 5};
    machine_.network = {1, 0};
  }
  // The settings that are faster, for example "parallel.stages=2, training.gradient_accumulation_steps=4".
  std::map<std::string, Speedup> faster(const std::vector<std::string>& sets, int ranks) const {
    const auto [job, now] = planned(sets, ranks);
    std::map<std::string, Speedup> out;
    for (const Speedup& speedup : find_speedups({}, all(sets), job, now, capacity_, machine_, 2).faster) {
      std::vector<std::string> changes, changed = sets;
      for (const auto& [key, value] : speedup.changes) changes.push_back(key + "=" + value);
      const std::string text = fmt::format("{}", fmt::join(changes, ", "));
      out.emplace(text, speedup);
      if (speedup.needs_more_memory) continue;
      changed.insert(changed.end(), changes.begin(), changes.end());
      const auto [other, then] = planned(changed, ranks);
      EXPECT_DOUBLE_EQ(speedup.tokens_per_s, then) << text << ", as the recipe with these keys";
      if (speedup.same_numbers) {
        EXPECT_EQ(other.plan.micro_batches(), job.plan.micro_batches()) << text;
      }
    }
    return out;
  }
  runtime::Machine machine_ = runtime::even_machine();
  runtime::Capacity capacity_ = runtime::capacity_of({.device = 1 << 30, .host = 1 << 30}, 1);

 private:
  static std::vector<std::string> all(const std::vector<std::string>& sets) {
    std::vector<std::string> out = {"model.preset=tiny-gpt2", "model.config.n_layer=4", "device.kind=cpu",
                                    "data.seq_len=64", "training.micro_batch_size=4"};
    out.insert(out.end(), sets.begin(), sets.end());
    return out;
  }
  // The job of the last stage, and the tokens per second of the step.
  std::pair<runtime::Job, double> planned(const std::vector<std::string>& sets, int ranks) const {
    runtime::Workload workload = runtime::open_workload(runtime::load_recipe({}, all(sets)));
    for (int rank = 0; ranks > 2 && rank < ranks; ++rank) workload.nodes.push_back(rank / 2);
    const std::optional<runtime::Machine> machine = machine_;
    std::vector<PlannedStage> stages = plan_pipeline({workload, ranks, capacity_, machine, 2});
    for (const PlannedStage& stage : stages) EXPECT_TRUE(runtime::fits(stage.job.plan, capacity_));
    const double speed = forecast(stages.back().job, machine_, 2, simulated(stages)).tokens_per_s;
    return {std::move(stages.back().job), speed};
  }
};

TEST_F(Settings, IncludeAnotherScheduleOfThePipeline) {
  const std::vector<std::string> two = {"parallel.stages=2", "training.gradient_accumulation_steps=4"};
  const std::vector<std::string> three = {two[0], two[1], "parallel.schedule=interleaved", "parallel.chunks=3"};
  // Computing dominates: while more pieces are filled, fewer ranks wait.
  EXPECT_TRUE(faster(two, 2).contains("parallel.schedule=interleaved, parallel.chunks=2"));
  machine_.task_overhead_us = 1000;  // a piece costs more than it saves
  const auto found = faster(three, 2);
  EXPECT_TRUE(found.contains("parallel.schedule=1f1b, parallel.chunks=1"));
  EXPECT_TRUE(found.contains("parallel.chunks=2"));
  EXPECT_FALSE(found.contains("parallel.chunks=4")) << "more pieces than units";
  EXPECT_FALSE(faster(two, 2).contains("parallel.schedule=interleaved, parallel.chunks=2"));
}

// Stages exchange less than ranks that shard the model.
TEST_F(Settings, IncludeMoreOrFewerStages) {
  machine_.network = {0.01, 0};
  const auto found = faster({"zero.stage=3", "training.gradient_accumulation_steps=4"}, 4);
  const auto more = found.find("parallel.stages=2, training.gradient_accumulation_steps=8");
  ASSERT_NE(more, found.end());
  EXPECT_TRUE(more->second.same_numbers);
  EXPECT_TRUE(faster({"zero.stage=3", "training.global_batch_size=64"}, 4).contains("parallel.stages=2"));
  machine_.network = {100, 0};
  const auto fewer = faster({"parallel.stages=4", "parallel.split=[1,1,1,1]", "training.global_batch_size=16"}, 4);
  EXPECT_TRUE(fewer.contains("parallel.stages=2, parallel.split=auto"));
}

// A node that holds all of the optimizer's state sends its sums less often than it would send them to all.
TEST_F(Settings, IncludeWiderGroups) {
  const auto found = faster({"zero.stage=1", "zero.optimizer_group=1", "zero.optimizer=host"}, 4);
  const auto wider = found.find("zero.optimizer_group=all");
  ASSERT_NE(wider, found.end());
  EXPECT_TRUE(wider->second.same_numbers);
}

// A move towards the device that does not fit is kept apart, with the memory that it needs.
TEST_F(Settings, IncludeMovesThatNeedMoreMemory) {
  machine_.host_copy_gb_per_s = 0.1;
  const std::vector<std::string> host = {"zero.optimizer=host"};
  EXPECT_FALSE(faster(host, 1).at("zero.optimizer=device").needs_more_memory);
  const std::size_t needed = faster(host, 1).at("zero.optimizer=device").memory[0].peak;
  capacity_.tier[0] = needed - 1;
  const Speedup more = faster(host, 1).at("zero.optimizer=device");
  EXPECT_TRUE(more.needs_more_memory);
  EXPECT_EQ(more.memory[0].peak, needed);
}

// Advice that no plan has tested is true of every step.
TEST(Advice, DependsOnWhoSharesTheWork) {
  const auto of = [](runtime::Bound bound, const std::vector<std::string>& sets) {
    return advice(bound, runtime::tiny_job(sets, 2).plan);
  };
  const std::string ranks = "more ranks on other machines";
  EXPECT_THAT(of(runtime::Bound::optimizer, {"zero.stage=1"}), testing::HasSubstr(ranks));
  EXPECT_THAT(of(runtime::Bound::optimizer, {"zero.stage=0"}), testing::Not(testing::HasSubstr(ranks)));
  EXPECT_THAT(of(runtime::Bound::communication, {"parallel.tensor=2"}),
              testing::Not(testing::HasSubstr("micro-batch")));
  EXPECT_EQ(of(runtime::Bound::stages, {"parallel.stages=2"}), "more micro-batches per step");
  EXPECT_THAT(of(runtime::Bound::host_link, {}), testing::Not(testing::HasSubstr("memory.device")));
}

}  // namespace
}  // namespace strata::launcher
