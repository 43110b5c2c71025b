#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/search/suggestion.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The refusal of a job that does not fit, when no change was found.
std::string refused(const Workload& workload, int ranks) {
  const Capacity capacity = capacity_of(workload.recipe.memory, 1);
  return refusal(make_job(workload, ranks, capacity), capacity, {});
}

Workload tiny_workload(std::vector<std::string> sets) {
  sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "data.seq_len=16", "memory.host=1GiB"});
  return open_workload(load_recipe({}, sets));
}

std::vector<std::string> sets_with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

// Additional ranks are on additional nodes, with the same number on each.
TEST(RefusalTest, MoreRanksAreOnMoreNodes) {
  const auto on_nodes = [](const std::string& device) {
    Workload workload = tiny_workload({"zero.optimizer_group=node", "zero.stage=2", "memory.device=" + device});
    workload.nodes = {0, 0, 1, 1};
    return workload;
  };
  EXPECT_THAT(refused(on_nodes("30KB"), 4), HasSubstr("on these ranks or more: use a smaller model"));
  Workload more = on_nodes("1GiB");
  more.recipe.zero.stage = 3;
  more.nodes = {0, 0, 1, 1, 2, 2, 3, 3};
  const std::size_t needed = make_job(more, 8, capacity_of({}, 1)).plan.memory[0].peak;
  EXPECT_THAT(refused(on_nodes(std::to_string(needed)), 4),
              HasSubstr("use 8 ranks, each with as much memory, and set zero.stage = 3"));
}

// More ranks leave each the activations of its own micro-batch, which recomputation saves.
TEST(RefusalTest, MoreRanksComeWithTheOtherChangesThatTheyNeed) {
  const std::vector<std::string> sets = {"model.config.n_layer=6", "data.seq_len=64", "training.micro_batch_size=4",
                                         "memory.prefetch=0", "memory.host=1KiB"};
  const auto peak = [&](const char* recompute, int ranks) {
    Workload workload = tiny_workload(sets_with(sets, {"zero.stage=3", recompute}));
    return make_job(workload, ranks, capacity_of({}, 1)).plan.memory[0].peak;
  };
  const std::size_t needed = peak("training.recompute=block", 8);
  ASSERT_GT(peak("training.recompute=none", 64), needed) << "more ranks alone do not help";
  const auto tight = sets_with(sets, {fmt::format("memory.device={}", needed)});
  const std::string text = refused(tiny_workload(tight), 1);
  EXPECT_THAT(text, HasSubstr("use 8 ranks, each with as much memory, and set zero.stage = 3 and training.recompute = "
                              "\"block\" (losses change, because the batch grows)"));
  EXPECT_THAT(refused(tiny_workload(sets_with(tight, {"training.recompute=block"})), 1),
              HasSubstr("use 8 ranks, each with as much memory, and set zero.stage = 3 (losses change"));
}

// Groups keep copies of the state on the new nodes, too.
TEST(RefusalTest, MoreRanksDoNotKeepGroupsThatAreTooSmall) {
  const std::vector<std::string> sets = {"memory.host=1KiB", "memory.prefetch=0", "training.recompute=block"};
  Workload all = tiny_workload(sets_with(sets, {"zero.stage=3"}));
  const std::size_t needed = make_job(all, 8, capacity_of({}, 1)).plan.memory[0].peak;
  const auto tight =
      sets_with(sets, {"zero.stage=3", "zero.optimizer_group=2", fmt::format("memory.device={}", needed)});
  EXPECT_THAT(refused(tiny_workload(tight), 4),
              HasSubstr("use 8 ranks, each with as much memory, and set zero.stage = 3 and zero.optimizer_group = "
                        "\"all\" (losses change"));
}

// A step of more ranks has whole runs of training.reduce_group.
TEST(RefusalTest, MoreRanksFormCompleteRuns) {
  const std::vector<std::string> sets = {"training.reduce_group=3", "training.gradient_accumulation_steps=3"};
  auto more = tiny_workload(sets);
  more.recipe.zero.stage = 3;
  const std::size_t needed = make_job(more, 2, capacity_of({}, 1)).plan.memory[0].peak;
  auto tight = sets;
  tight.push_back("memory.device=" + std::to_string(needed));
  EXPECT_THAT(
      refused(tiny_workload(tight), 1),
      HasSubstr(
          "use 2 ranks, each with as much memory, and set zero.stage = 3 (losses change, because the batch grows)"));
  tight[1] = "training.global_batch_size=3";
  EXPECT_THAT(refused(tiny_workload(tight), 1),
              HasSubstr("zero.stage = 3, with training.gradient_accumulation_steps = 3 instead of "
                        "training.global_batch_size (losses change, because the batch grows)"));
  tight.back() = "memory.device=10KB";
  EXPECT_THAT(refused(tiny_workload(tight), 1), HasSubstr("on these ranks or more: use a smaller model"));
}

// The statement about the numbers is true for the recipe.
TEST(RefusalTest, ReportsTheEffectOfChangesOnTheNumbers) {
  const auto said = [](std::vector<std::string> sets, std::vector<std::pair<std::string, std::string>> changes) {
    sets.insert(sets.end(), {"memory.device=30KB", "training.global_batch_size=4"});
    const Workload workload = tiny_workload(sets);
    const Capacity capacity = capacity_of(workload.recipe.memory, 1);
    const Job job = make_job(workload, 2, capacity);
    return refusal(job, capacity, {{std::move(changes), job.plan.memory}});
  };
  const auto rounded = HasSubstr("; same batch, rounded differently)");
  EXPECT_THAT(said({}, {{"parallel.tensor", "2"}}), rounded);
  EXPECT_THAT(said({"parallel.tensor_shards=2"}, {{"parallel.tensor", "2"}}), Not(HasSubstr("rounded")));
  EXPECT_THAT(said({"parallel.tensor_shards=2"}, {{"parallel.tensor", "4"}, {"parallel.tensor_shards", "4"}}), rounded);
  EXPECT_THAT(said({"parallel.tensor_shards=2", "training.reduce=fast"}, {{"parallel.tensor", "2"}}), rounded);
  EXPECT_THAT(said({}, {{"parallel.stages", "2"}}), Not(HasSubstr("rounded")));
  EXPECT_THAT(said({"training.reduce=fast"}, {{"parallel.stages", "2"}}), rounded);
  EXPECT_THAT(said({}, {{"training.micro_batch_size", "1"}}),
              HasSubstr("; same batch, rounded differently, with different dropout masks if there are any)"));
  EXPECT_THAT(said({}, {{"training.precision", "\"bf16\""}}), HasSubstr("; losses change)"));
}

// The refusal names what the search changes for this job, and nothing else.
TEST(RefusalTest, NamesWhatWasTried) {
  const auto text = [](std::vector<std::string> sets, int ranks) {
    sets.push_back("memory.device=4KiB");
    return refused(tiny_workload(sets), ranks);
  };
  const auto after = [](const std::string& tried) {
    return HasSubstr("; no change of " + tried + " was found that makes it fit");
  };
  EXPECT_THAT(text({"training.precision=bf16"}, 1), after("tiers, recomputation, micro-batch or prefetch"));
  EXPECT_THAT(text({"training.precision=fp32"}, 1), after("tiers, recomputation, micro-batch, prefetch or precision"));
  const std::string here = "ZeRO stage, groups, tiers, recomputation, micro-batch, prefetch";
  EXPECT_THAT(text({"training.precision=fp32"}, 2), after(here + ", parallel.stages, parallel.tensor or precision"));
  EXPECT_THAT(text({"training.precision=bf16"}, 2), after(here + ", parallel.stages or parallel.tensor"));
  EXPECT_THAT(text({"training.precision=bf16", "model.config.n_head=1"}, 2), after(here + " or parallel.stages"));
  EXPECT_THAT(text({"training.precision=bf16"}, 3), after(here + " or parallel.stages"));
  const Workload forwards = tiny_workload({"memory.device=4KiB", "training.precision=bf16"});
  const Capacity capacity = capacity_of(forwards.recipe.memory, 1);
  EXPECT_THAT(
      refusal(make_job(forwards, 2, capacity, Purpose::evaluate), capacity, {}),
      HasSubstr("; no change of ZeRO stage, tiers, micro-batch or prefetch was found that makes it fit: use more "
                "ranks or a smaller model"));
}

}  // namespace
}  // namespace strata::runtime
