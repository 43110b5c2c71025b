#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/search/suggestion.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A large head does not fit next to all activations of the model, but it fits next to those of the last stage alone.
// The losses stay the same.
TEST(SuggestionOverRanks, StagesAreSuggestedWhenNothingElseFits) {
  std::vector<std::string> sets = {"model.config.n_layer=6",
                                   "model.config.n_embd=64",
                                   "model.config.n_head=2",
                                   "model.config.n_inner=64",
                                   "model.config.vocab_size=3000",
                                   "model.config.n_positions=512",
                                   "data.seq_len=512",
                                   "training.global_batch_size=4",
                                   "memory.host=1KiB",
                                   "training.precision=fp32",
                                   "zero.stage=3",
                                   "memory.prefetch=0",
                                   "training.recompute=block"};
  auto staged = sets;
  staged.push_back("parallel.stages=2");
  const auto peak_of = [](std::vector<std::string> of) {
    of.insert(of.begin(), {"model.preset=tiny-gpt2"});
    const Recipe recipe = load_recipe({}, of);
    std::size_t peak = 0;
    for (const Job& stage : jobs_of_stages(open_workload(recipe), 2, capacity_of(recipe.memory, 1)))
      peak = std::max(peak, stage.plan.memory[0].peak);
    return peak;
  };
  const std::size_t needed = peak_of(staged);
  ASSERT_LT(needed, peak_of(sets));
  sets.push_back(fmt::format("memory.device={}", needed));
  const Job refused = tiny_job(sets, 2);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  const auto nearest = nearest_that_fit(refused, capacity);
  ASSERT_EQ(nearest.size(), 1u);
  EXPECT_THAT(nearest[0].changes, testing::Contains(testing::Pair("parallel.stages", "2")));
  const std::string text = refusal(refused, capacity, nearest);
  EXPECT_THAT(text, AllOf(HasSubstr("--set parallel.stages=2"), testing::Not(HasSubstr("losses change"))));
  auto changed = sets;
  for (const auto& [key, value] : nearest[0].changes) changed.push_back(key + "=" + value);
  EXPECT_TRUE(memory_of_stages(tiny_job(changed, 2), capacity).has_value());
}

// A pipeline that does not fit gets more stages, here in four ranks instead of two.
TEST(SuggestionOverRanks, MoreStagesAreSuggestedForAPipeline) {
  const std::vector<std::string> sets = {"model.preset=llama-1b",   "model.config.vocab_size=1024",
                                         "data.seq_len=128",        "training.global_batch_size=4",
                                         "memory.host=1MiB",        "memory.device=4356MiB",
                                         "training.precision=bf16", "parallel.stages=2"};
  const Recipe recipe = load_recipe({}, sets);
  const Capacity capacity = capacity_of(recipe.memory, 1);
  const Job refused = draft_job(open_workload(recipe), 4, capacity);
  ASSERT_FALSE(memory_of_stages(refused, capacity));
  const auto nearest = nearest_that_fit(refused, capacity);
  ASSERT_EQ(nearest.size(), 1u);
  EXPECT_THAT(nearest[0].changes, testing::Contains(testing::Pair("parallel.stages", "4")));
  auto changed = sets;
  for (const auto& [key, value] : nearest[0].changes) changed.push_back(fmt::format("{}={}", key, value));
  EXPECT_TRUE(memory_of_stages(draft_job(open_workload(load_recipe({}, changed)), 4, capacity), capacity));
}

// Two stages take three sequences on three data ranks each, which two data ranks of three stages cannot share.
TEST(SuggestionOverRanks, OmitsStagesWhoseDataRanksCannotShareTheBatch) {
  for (const char* batch : {"training.global_batch_size=3", "training.gradient_accumulation_steps=1"}) {
    const Job refused = tiny_job({"model.config.n_layer=6", "parallel.stages=2", "training.precision=fp32", batch,
                                  "memory.device=100KB", "memory.host=100KB"},
                                 6);
    const Capacity capacity = capacity_of(refused.recipe.memory, 1);
    EXPECT_THAT(refusal(refused, capacity, nearest_that_fit(refused, capacity)), HasSubstr("memory.device is"));
  }
}

// Removing a group keeps the bits and costs less time than moving state to another tier.
TEST(SuggestionOverRanks, RemovesGroupsBeforeItOffloads) {
  const struct {
    const char* stage;
    const char* group;
  } cases[] = {{"zero.stage=1", "zero.optimizer_group"},
               {"zero.stage=2", "zero.gradients_group"},
               {"zero.stage=3", "zero.optimizer_group"}};
  for (const auto& [stage, group] : cases) {
    SCOPED_TRACE(fmt::format("{}, {}", stage, group));
    std::vector<std::string> sets = {stage, "memory.host=1GiB", "training.recompute=block",
                                     "training.global_batch_size=8", "training.precision=fp32"};
    const std::size_t needed = tiny_job(sets, 8).plan.memory[0].peak;
    sets.insert(sets.end(), {fmt::format("{}=2", group), fmt::format("memory.device={}", needed)});
    const Job refused = tiny_job(sets, 8);
    const Capacity capacity = capacity_of(refused.recipe.memory, 1);
    ASSERT_FALSE(fits(refused.plan, capacity));
    const std::string text = refusal(refused, capacity, nearest_that_fit(refused, capacity));
    const auto removed = text.find(fmt::format("\n  --set {}=all  (device ", group));
    ASSERT_NE(removed, text.npos) << text;
    EXPECT_LT(removed, text.find("=host")) << text;
    EXPECT_THAT(text.substr(removed, text.find('\n', removed + 1) - removed), testing::Not(HasSubstr("rounded")));
  }
}

// One block is too large for a rank, and two ranks can share it. The batch and the precision are added by each test.
std::vector<std::string> large_block(const std::vector<std::string>& more) {
  std::vector<std::string> sets = {"model.config.n_layer=2",
                                   "model.config.n_embd=64",
                                   "model.config.n_head=2",
                                   "model.config.n_inner=8192",
                                   "model.config.vocab_size=300",
                                   "model.config.n_positions=512",
                                   "data.seq_len=512",
                                   "memory.host=1KiB",
                                   "zero.stage=3",
                                   "memory.prefetch=0",
                                   "training.recompute=block"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

// The activations of one block for one sequence do not fit with any number of stages, but fit on two ranks that share
// the block. Sums are then rounded differently.
TEST(SuggestionOverRanks, RanksThatShareALayerAreSuggestedWhenOneIsTooLarge) {
  std::vector<std::string> sets = large_block({"training.global_batch_size=4", "training.precision=bf16"});
  auto shared = sets;
  shared.push_back("parallel.tensor=2");
  const std::size_t needed = tiny_job(shared, 2).plan.memory[0].peak;
  ASSERT_LT(needed, tiny_job(sets, 2).plan.memory[0].peak);
  sets.push_back(fmt::format("memory.device={}", needed));
  const Job refused = tiny_job(sets, 2);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  const auto nearest = nearest_that_fit(refused, capacity);
  ASSERT_EQ(nearest.size(), 1u);
  EXPECT_THAT(nearest[0].changes, testing::Contains(testing::Pair("parallel.tensor", "2")));
  EXPECT_THAT(refusal(refused, capacity, nearest), HasSubstr("--set parallel.tensor=2"));
  auto changed = sets;
  for (const auto& [key, value] : nearest[0].changes) changed.push_back(key + "=" + value);
  EXPECT_TRUE(memory_of_stages(tiny_job(changed, 2), capacity).has_value());
}

// Two ranks already share each layer, and four would suffice, with more shards than the two of the run.
TEST(SuggestionOverRanks, MoreRanksThatShareALayerAreSuggested) {
  std::vector<std::string> sets = {"model.config.n_layer=2",
                                   "model.config.n_embd=64",
                                   "model.config.n_head=4",
                                   "model.config.n_inner=8192",
                                   "model.config.vocab_size=300",
                                   "model.config.n_positions=512",
                                   "data.seq_len=511",
                                   "training.global_batch_size=4",
                                   "memory.host=1KiB",
                                   "training.precision=bf16",
                                   "zero.stage=3",
                                   "memory.prefetch=0",
                                   "training.recompute=block",
                                   "training.micro_batch_size=1"};
  const auto with_tensor = [&](int tensor) {
    auto shared = sets;
    shared.push_back(fmt::format("parallel.tensor={}", tensor));
    return shared;
  };
  const std::size_t needed = tiny_job(with_tensor(4), 4).plan.memory[0].peak;
  sets.push_back(fmt::format("memory.device={}", needed));
  const Job refused = tiny_job(with_tensor(2), 4);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  const auto nearest = nearest_that_fit(refused, capacity);
  ASSERT_EQ(nearest.size(), 1u);
  EXPECT_THAT(nearest[0].changes, testing::Contains(testing::Pair("parallel.tensor", "4")));
  EXPECT_THAT(nearest[0].changes, testing::Contains(testing::Pair("parallel.tensor_shards", "4")));
  auto changed = with_tensor(2);
  for (const auto& [key, value] : nearest[0].changes) changed.push_back(key + "=" + value);
  EXPECT_TRUE(memory_of_stages(tiny_job(changed, 4), capacity).has_value());
}

std::size_t peak_of_stages(const std::vector<std::string>& sets, int ranks) {
  const Capacity unlimited{{SIZE_MAX, SIZE_MAX, SIZE_MAX}, SIZE_MAX};
  return memory_of_stages(tiny_job(sets, ranks), unlimited).value()[0].peak;
}

// The nearest recipes, and the refusal, of a recipe with this device memory; each of the recipes fits.
std::pair<std::vector<Suggestion>, std::string> refused_with(std::vector<std::string> sets, int ranks,
                                                             std::size_t device) {
  sets.push_back(fmt::format("memory.device={}", device));
  const Job job = tiny_job(sets, ranks);
  const Capacity capacity = capacity_of(job.recipe.memory, 1);
  EXPECT_FALSE(memory_of_stages(job, capacity));
  std::vector<Suggestion> nearest = nearest_that_fit(job, capacity);
  for (const Suggestion& s : nearest) {
    auto changed = sets;
    for (const auto& [key, value] : s.changes) changed.push_back(key + "=" + value);
    EXPECT_TRUE(memory_of_stages(tiny_job(changed, ranks), capacity)) << fmt::format("{}", fmt::join(changed, " "));
  }
  std::string text = refusal(job, capacity, nearest);
  return {std::move(nearest), std::move(text)};
}

// If the recipe has enough virtual shards, ranks that share a layer keep the bits.
TEST(SuggestionOverRanks, RanksThatShareALayerKeepTheBitsOfShards) {
  const auto sets =
      large_block({"parallel.tensor_shards=2", "training.global_batch_size=4", "training.precision=bf16"});
  auto shared = sets;
  shared.push_back("parallel.tensor=2");
  const auto [nearest, text] = refused_with(sets, 2, peak_of_stages(shared, 2));
  ASSERT_EQ(nearest.size(), 1u) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("--set parallel.tensor=2 "), testing::Not(HasSubstr("rounded")),
                          testing::Not(HasSubstr("tensor_shards"))));
}

// The same batch on fewer data ranks needs sums of gradients, for which there is no room.
TEST(SuggestionOverRanks, SmallerBatchesAreSuggestedLast) {
  const auto sets = large_block({"training.precision=bf16", "training.micro_batch_size=1"});
  auto shared = sets;
  shared.push_back("parallel.tensor=2");
  auto same_batch = shared;
  same_batch.push_back("training.gradient_accumulation_steps=2");
  const std::size_t needed = peak_of_stages(shared, 2);
  ASSERT_LT(needed, peak_of_stages(same_batch, 2));
  const auto [nearest, text] = refused_with(sets, 2, needed);
  ASSERT_EQ(nearest.size(), 1u) << text;
  EXPECT_THAT(text,
              AllOf(HasSubstr("--set parallel.tensor=2 "), HasSubstr("; losses change, because the batch shrinks)"),
                    testing::Not(HasSubstr("gradient_accumulation_steps"))));
  auto fixed = sets;
  fixed.push_back("training.global_batch_size=2");
  EXPECT_THAT(refused_with(fixed, 2, needed).first, testing::IsEmpty()) << "the recipe says how large the batch is";
}

// No mesh suffices in fp32.
TEST(SuggestionOverRanks, RanksThatShareALayerAreSuggestedInBf16) {
  const auto sets = large_block({"training.precision=fp32", "training.global_batch_size=4"});
  auto rounded = sets;
  rounded.insert(rounded.end(), {"parallel.tensor=2", "training.precision=bf16"});
  const auto [nearest, text] = refused_with(sets, 2, peak_of_stages(rounded, 2));
  ASSERT_EQ(nearest.size(), 1u) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("--set parallel.tensor=2 "), HasSubstr("--set training.precision=bf16 "),
                          HasSubstr("; losses change)")));
}

// A stage has the large head or the large blocks, and two ranks have to share either.
TEST(SuggestionOverRanks, RanksThatShareALayerAreSuggestedTogetherWithStages) {
  const auto sets =
      large_block({"model.config.n_layer=6", "model.config.n_inner=1536", "model.config.vocab_size=8000",
                   "training.precision=bf16", "training.global_batch_size=4", "training.micro_batch_size=1"});
  const auto with = [&](const std::vector<std::string>& mesh) {
    auto all = sets;
    all.insert(all.end(), mesh.begin(), mesh.end());
    return peak_of_stages(all, 4);
  };
  const std::size_t needed = with({"parallel.tensor=2", "parallel.stages=2"});
  ASSERT_LT(needed, with({"parallel.tensor=2"}));
  ASSERT_LT(needed, with({"parallel.stages=2"}));
  ASSERT_LT(needed, with({"parallel.stages=4"}));
  const auto [nearest, text] = refused_with(sets, 4, needed);
  ASSERT_EQ(nearest.size(), 1u) << text;
  EXPECT_THAT(text, HasSubstr("--set parallel.stages=2 --set parallel.tensor=2 "));
}

// Ranks that share each layer divide the rows, with the same bits.
TEST(SuggestionOverRanks, DividedRowsAreSuggested) {
  std::vector<std::string> sets = {
      "parallel.tensor=4",           "model.config.n_layer=4", "data.seq_len=128", "model.config.n_positions=128",
      "training.micro_batch_size=1", "memory.host=1KiB"};
  auto divided = sets;
  divided.push_back("parallel.sequence=true");
  const std::size_t needed = tiny_job(divided, 4).plan.memory[0].peak;
  ASSERT_LT(needed, tiny_job(sets, 4).plan.memory[0].peak);
  sets.push_back(fmt::format("memory.device={}", needed));
  const Job refused = tiny_job(sets, 4);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  const auto nearest = nearest_that_fit(refused, capacity);
  ASSERT_FALSE(nearest.empty());
  const std::vector<std::pair<std::string, std::string>> alone = {{"parallel.sequence", "true"}};
  const auto divides = [&](const Suggestion& s) { return s.changes == alone; };
  EXPECT_TRUE(std::ranges::any_of(nearest, divides));
  EXPECT_THAT(refusal(refused, capacity, nearest), HasSubstr("--set parallel.sequence=true"));
}

// Values that leave rows that the ranks of a layer cannot divide are not tried, so that the refusal is about memory.
TEST(SuggestionOverRanks, OmitsRowsThatCannotBeDivided) {
  const auto refused = [](std::vector<std::string> sets) {
    sets.insert(sets.end(), {"parallel.tensor=2", "model.config.n_layer=3", "training.micro_batch_size=2",
                             "training.precision=fp32", "memory.device=100KB", "memory.host=100KB"});
    const Job job = tiny_job(sets, 2);
    const Capacity capacity = capacity_of(job.recipe.memory, 1);
    return refusal(job, capacity, nearest_that_fit(job, capacity));
  };
  EXPECT_THAT(refused({"data.seq_len=15", "parallel.sequence=true"}), HasSubstr("memory.device is"));
  EXPECT_THAT(refused({"data.seq_len=15"}), HasSubstr("memory.device is"));
  EXPECT_THAT(refused({"model.config.n_embd=18", "model.config.n_inner=64", "model.config.n_head=2"}),
              HasSubstr("memory.device is"));
}

// With divided rows, a smaller micro-batch has the fewest sequences whose rows the ranks of a layer can divide.
TEST(SuggestionOverRanks, SmallerMicroBatchesKeepRowsThatCanBeDivided) {
  std::vector<std::string> sets = {
      "parallel.tensor=2",        "parallel.sequence=true", "data.seq_len=127", "model.config.n_positions=128",
      "training.recompute=block", "zero.optimizer=device",  "memory.host=1KiB"};
  auto least = sets;
  least.insert(least.end(), {"training.micro_batch_size=2", "training.gradient_accumulation_steps=8"});
  sets.push_back(fmt::format("memory.device={}", tiny_job(least, 2).plan.memory[0].peak));
  sets.insert(sets.end(), {"training.micro_batch_size=8", "training.gradient_accumulation_steps=2"});
  const Job refused = tiny_job(sets, 2);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  EXPECT_THAT(refusal(refused, capacity, nearest_that_fit(refused, capacity)),
              HasSubstr("--set training.micro_batch_size=2 --set training.gradient_accumulation_steps=8"));
}

}  // namespace
}  // namespace strata::runtime
