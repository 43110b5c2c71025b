#include "runtime/job/search/suggestion.h"

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
#include "runtime/job/search/candidate.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SuggestionTest, SuggestedRecipesFit) {
  const std::vector<std::string> sets = {"memory.device=12MB", "training.micro_batch_size=8",
                                         "training.precision=fp32"};
  const Job refused = tiny_job(sets, 4);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  const auto nearest = nearest_that_fit(refused, capacity);
  ASSERT_FALSE(nearest.empty());
  for (const Suggestion& s : nearest) {
    std::vector<std::string> changed = sets;
    for (const auto& [key, value] : s.changes) changed.push_back(key + "=" + value);
    const Job fitting = tiny_job(changed, 4);
    EXPECT_TRUE(fits(fitting.plan, capacity)) << changed.back();
    EXPECT_EQ(fitting.plan.memory[0].peak, s.memory[0].peak);
    EXPECT_EQ(fitting.plan.accumulation * fitting.recipe.training.micro_batch_size, 8) << "another global batch";
  }
}

// Whether the recipe of `sets` with these changes fits.
bool fits_with(std::vector<std::string> sets, const std::vector<std::pair<std::string, std::string>>& changes,
               int ranks, const Capacity& capacity) {
  for (const auto& [key, value] : changes) sets.push_back(key + "=" + value);
  return fits(tiny_job(sets, ranks).plan, capacity);
}

// A recipe that needs more changes than are tried one by one also gets a suggestion, without unnecessary changes.
TEST(SuggestionTest, SuggestsManyChangesAtOnce) {
  const std::vector<std::string> sets = {"training.micro_batch_size=8", "memory.nvme=/none", "memory.host=1GiB"};
  auto least = sets;
  for (const char* change : {"zero.stage=3", "training.recompute=block", "zero.parameters=nvme", "zero.gradients=nvme",
                             "zero.optimizer=nvme", "training.micro_batch_size=1",
                             "training.gradient_accumulation_steps=8", "memory.prefetch=0"})
    least.emplace_back(change);
  auto tight = sets;
  tight.push_back(fmt::format("memory.device={}", tiny_job(least, 2).plan.memory[0].peak));
  const Job refused = tiny_job(tight, 2);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  const auto nearest = nearest_that_fit(refused, capacity);
  ASSERT_EQ(nearest.size(), 1u);
  const auto& changes = nearest[0].changes;
  EXPECT_GT(changes.size(), 4u);
  EXPECT_TRUE(fits_with(tight, changes, 2, capacity));
  for (std::size_t left_out = 0; left_out < changes.size(); ++left_out) {
    if (changes[left_out].first == "training.gradient_accumulation_steps") continue;  // keeps the global batch
    auto fewer = changes;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(left_out));
    EXPECT_FALSE(fits_with(tight, fewer, 2, capacity)) << changes[left_out].first << " is not needed";
  }
}

// Half, a quarter and an eighth of the micro-batch, with correspondingly more micro-batches.
TEST(SuggestionTest, KeepsTheGlobalBatch) {
  std::vector<std::string> sets = {"training.micro_batch_size=8", "training.gradient_accumulation_steps=3",
                                   "training.recompute=block",    "data.seq_len=64",
                                   "memory.order=horizontal",     "training.precision=bf16"};
  auto quarter = sets;
  quarter.insert(quarter.end(), {"training.micro_batch_size=2", "training.gradient_accumulation_steps=12"});
  sets.push_back(fmt::format("memory.device={}", tiny_job(quarter, 1).plan.memory[0].peak));
  const Job refused = tiny_job(sets, 1);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  const auto nearest = nearest_that_fit(refused, capacity);
  std::vector<std::int64_t> sizes;
  for (const Suggestion& s : nearest) {
    auto changed = sets;
    for (const auto& [key, value] : s.changes) changed.push_back(key + "=" + value);
    const Job fitting = tiny_job(changed, 1);
    EXPECT_TRUE(fits(fitting.plan, capacity));
    EXPECT_EQ(fitting.recipe.training.micro_batch_size * fitting.plan.accumulation, 24) << changed.back();
    sizes.push_back(fitting.recipe.training.micro_batch_size);
  }
  EXPECT_THAT(sizes, ::testing::IsSupersetOf({2, 1})) << "a half is too much, a quarter is not";
  EXPECT_THAT(sizes, ::testing::Not(::testing::Contains(4)));
}

// State goes to host memory as long as there is room, then to NVMe. If the recipe names no drive, the user is asked for
// one. Suggestions fit in every tier.
TEST(SuggestionTest, SuggestsTiers) {
  const auto nearest = [](std::vector<std::string> sets, const char* device = "5MiB") {
    sets.insert(sets.end(), {fmt::format("memory.device={}", device), "training.recompute=block"});
    const Job refused = tiny_job(sets, 1);
    const Capacity capacity = capacity_of(refused.recipe.memory, 1);
    EXPECT_FALSE(fits(refused.plan, capacity));
    const auto found = nearest_that_fit(refused, capacity);
    std::string text = refusal(refused, capacity, found);
    for (const Suggestion& s : found) {
      auto changed = sets;
      for (const auto& [key, value] : s.changes) changed.push_back(key + "=" + value);
      EXPECT_TRUE(fits(tiny_job(changed, 1).plan, capacity)) << text;
    }
    return text;
  };
  EXPECT_THAT(nearest({"memory.host=1GiB", "memory.nvme=/none"}),
              AllOf(HasSubstr("it fits with\n  --set zero.optimizer=host  (device "), HasSubstr(", host "),
                    testing::Not(HasSubstr("nvme"))));
  EXPECT_THAT(nearest({"memory.host=10MiB", "memory.nvme=/none"}),
              AllOf(HasSubstr("--set zero.optimizer=nvme  (device "), HasSubstr(", nvme ")));
  EXPECT_THAT(nearest({"memory.host=10MiB"}),
              HasSubstr("--set memory.nvme=FOLDER --set zero.optimizer=nvme  (device "));
  EXPECT_THAT(nearest({"memory.host=1MiB", "memory.nvme=/none"}),
              HasSubstr("use 8 ranks, each with as much memory, and set zero.stage = 3 (losses change"));
  const std::vector<std::string> little = {"memory.device=5MiB", "memory.host=1MiB", "training.recompute=block",
                                           "zero.stage=3"};
  const Job on_four = tiny_job(little, 4), on_eight = tiny_job(little, 8);
  const Capacity capacity = capacity_of(on_eight.recipe.memory, 1);
  EXPECT_FALSE(fits(on_four.plan, capacity));
  EXPECT_TRUE(fits(on_eight.plan, capacity));
  EXPECT_THAT(nearest({"memory.host=1MiB", "memory.nvme=/none"}, "4KiB"),
              HasSubstr("on these ranks or more: use a smaller model"));
  // The host's memory is too small.
  EXPECT_THAT(
      nearest({"memory.host=10MiB", "memory.nvme=/none", "zero.optimizer=host"}, "1GiB"),
      AllOf(HasSubstr("of host memory, but memory.host is 10.0 MiB"), HasSubstr("--set zero.optimizer=nvme  (device "),
            HasSubstr("--set zero.optimizer=device  (device ")));
}

// Changes that keep the bits come first. Those that change the losses say so, and are named only if nothing else fits.
TEST(SuggestionTest, PrefersChangesThatKeepTheBits) {
  const auto refused = [](std::vector<std::string> sets) {
    sets.insert(sets.end(), {"training.precision=fp32", "training.micro_batch_size=4"});
    const Job job = tiny_job(sets, 1);
    const Capacity capacity = capacity_of(job.recipe.memory, 1);
    EXPECT_FALSE(fits(job.plan, capacity));
    return refusal(job, capacity, nearest_that_fit(job, capacity));
  };
  const std::size_t all = tiny_job({"training.precision=fp32", "training.micro_batch_size=4"}, 1).plan.memory[0].peak;
  const std::string text = refused({fmt::format("memory.device={}", all * 2 / 3), "memory.host=1GiB"});
  EXPECT_THAT(text, AllOf(HasSubstr("--set "), testing::Not(HasSubstr("training.precision"))));
  const auto rounded = text.find("; same batch, rounded differently, with different dropout");
  const auto first = text.find("\n  --set "), end = text.find('\n', first + 1);
  EXPECT_THAT(text.substr(first, end - first), testing::Not(HasSubstr("micro_batch_size"))) << text;
  if (rounded != text.npos) {
    EXPECT_GT(rounded, end);
  }
  const Job job = tiny_job({}, 1);
  EXPECT_THAT(
      refusal(job, capacity_of(job.recipe.memory, 1), {{{{"training.precision", "\"bf16\""}}, job.plan.memory}}),
      HasSubstr("; losses change)"));
}

// The recipe sets a tile size. The largest smaller size that fits is suggested.
TEST(SuggestionTest, SuggestsASmallerTile) {
  const auto with = [](const std::string& key, const std::string& value) {
    return std::vector<std::string>{
        "model.config.n_embd=256", "model.config.n_head=4", "data.seq_len=8",          "zero.stage=3",
        "memory.order=horizontal", "memory.prefetch=0",     "training.precision=bf16", key + "=" + value};
  };
  constexpr int kRanks = 4;
  const std::size_t whole = tiny_job(with("memory.tile", "1GiB"), kRanks).plan.memory[0].peak,
                    tiled = tiny_job(with("memory.tile", "256KiB"), kRanks).plan.memory[0].peak;
  ASSERT_LT(tiled, whole);
  auto sets = with("memory.tile", "1GiB");
  sets.push_back(fmt::format("memory.device={}", (whole + tiled) / 2));
  const Job refused = tiny_job(sets, kRanks);
  const Capacity capacity = capacity_of(refused.recipe.memory, 1);
  ASSERT_FALSE(fits(refused.plan, capacity));
  const auto nearest = nearest_that_fit(refused, capacity);
  int tiles = 0;
  for (const Suggestion& s : nearest) {
    EXPECT_TRUE(fits_with(sets, s.changes, kRanks, capacity)) << s.changes[0].first << "=" << s.changes[0].second;
    tiles += s.changes.size() == 1 && s.changes[0].first == "memory.tile" ? 1 : 0;
  }
  EXPECT_EQ(tiles, 1);
  EXPECT_THAT(refusal(refused, capacity, nearest), HasSubstr(" --set memory.tile="));
}

// More ranks take fewer micro-batches each, of which two interleaved stages need an even number.
TEST(SuggestionTest, ARefusalOfAnInterleavedPipelineMentionsMemory) {
  const Job job = tiny_job({"parallel.stages=2", "parallel.schedule=interleaved", "parallel.chunks=2",
                            "model.config.n_layer=4", "training.gradient_accumulation_steps=2", "memory.device=10KiB"},
                           2);
  const Capacity capacity = capacity_of(job.recipe.memory, 1);
  EXPECT_THAT(refusal(job, capacity, {}), HasSubstr("memory.device is 10.0 KiB"));
}

// The message uses the term of plans and reports, because a CPU has no device memory.
TEST(SuggestionTest, ARefusalOnTheCpuMentionsRam) {
  const Job job = tiny_job({"memory.device=10KiB"}, 1);
  const Capacity capacity = capacity_of(job.recipe.memory, 1);
  EXPECT_THAT(refusal(job, capacity, {}), HasSubstr("of RAM for the model, but memory.device is 10.0 KiB"));
}

// If host memory is small, moving state back to the device is considered, even if that takes several changes.
TEST(SuggestionTest, MovesStateBackIfTheHostIsTooSmall) {
  const auto refused = [](const std::vector<std::string>& sets) {
    const Job job = tiny_job(sets, 1);
    const Capacity capacity = capacity_of(job.recipe.memory, 1);
    EXPECT_FALSE(fits(job.plan, capacity));
    return refusal(job, capacity, nearest_that_fit(job, capacity));
  };
  EXPECT_THAT(refused({"zero.optimizer=host", "memory.host=8MiB"}),
              AllOf(HasSubstr("of host memory, but memory.host is 8.0 MiB"),
                    HasSubstr("it fits with\n  --set zero.optimizer=device  (device ")));
  EXPECT_THAT(refused({"zero.optimizer=host", "zero.gradients=host", "zero.parameters=host", "zero.activations=host",
                       "training.recompute=block", "memory.host=1KiB"}),
              AllOf(HasSubstr("--set zero.optimizer=device"), HasSubstr("--set zero.parameters=device"),
                    HasSubstr("--set zero.gradients=device"), HasSubstr("--set zero.activations=device")));
}

// A recipe that is refused, and others of which some may fit.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return random_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  std::string tier(bool drive) { return std::array{"device", "host", "nvme"}[below(drive ? 3 : 2)]; }
  // A random number from `least` to `most`, equally likely below and above their geometric mean.
  std::size_t bytes(double least, double most) {
    return static_cast<std::size_t>(least * std::pow(most / least, static_cast<double>(below(1000)) / 1000));
  }

 private:
  std::mt19937 random_;
};

std::vector<std::string> tight_recipe(Draw& draw, bool drive) {
  std::vector<std::string> sets = {fmt::format("data.seq_len={}", 16 << draw.below(2)),
                                   fmt::format("zero.stage={}", draw.below(4)),
                                   fmt::format("training.micro_batch_size={}", 1 << draw.below(3)),
                                   fmt::format("training.gradient_accumulation_steps={}", 1 + draw.below(2)),
                                   fmt::format("memory.prefetch={}", draw.below(3)),
                                   fmt::format("training.precision={}", draw.one_in(2) ? "fp32" : "bf16"),
                                   fmt::format("memory.device={}", draw.bytes(2e6, 3e7)),
                                   fmt::format("memory.host={}", draw.bytes(1e5, 3e7))};
  if (drive) sets.emplace_back("memory.nvme=/none");
  for (const char* key : {"zero.parameters", "zero.gradients", "zero.optimizer"})
    if (draw.one_in(2)) sets.push_back(fmt::format("{}={}", key, draw.tier(drive)));
  if (draw.one_in(2)) {
    sets.emplace_back(draw.one_in(2) ? "training.recompute=block" : "training.recompute=sqrt");
    if (draw.one_in(2)) sets.push_back("zero.activations=" + draw.tier(drive));
  }
  return sets;
}

// A random change to everything that a refusal may suggest, except the global batch.
std::vector<std::string> changed_recipe(Draw& draw, std::vector<std::string> sets, const Recipe& recipe) {
  const auto stage = static_cast<std::size_t>(recipe.zero.stage);
  sets.emplace_back("memory.nvme=/none");
  sets.push_back(fmt::format("zero.stage={}", stage + draw.below(4 - stage)));
  sets.emplace_back(draw.one_in(3) ? "training.recompute=sqrt" : "training.recompute=block");
  for (const char* key : {"zero.parameters", "zero.gradients", "zero.optimizer", "zero.activations"})
    sets.push_back(fmt::format("{}={}", key, draw.tier(true)));
  const std::int64_t size = draw.one_in(3) ? recipe.training.micro_batch_size : 1;
  sets.push_back(fmt::format("training.micro_batch_size={}", size));
  sets.push_back(fmt::format("training.gradient_accumulation_steps={}",
                             recipe.accumulation_steps(1) * recipe.training.micro_batch_size / size));
  sets.push_back(fmt::format("memory.prefetch={}", draw.one_in(3) ? recipe.memory.prefetch : 0));
  if (draw.one_in(2)) sets.emplace_back("training.precision=bf16");
  return sets;
}

// Each suggestion fits, with the same global batch unless it says otherwise. If there is none, no random change fits
// either.
TEST(SuggestionTest, RefusalsOfRandomRecipesAreCorrect) {
  Draw draw(20261122);
  int refused = 0, without = 0;
  for (int i = 0; i < 30; ++i) {
    const int ranks = 1 << draw.below(3);
    const std::vector<std::string> sets = tight_recipe(draw, draw.one_in(2));
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, fmt::join(sets, " ")));
    const Job job = tiny_job(sets, ranks);
    const Capacity capacity = capacity_of(job.recipe.memory, 1);
    if (fits(job.plan, capacity)) continue;
    ++refused;
    const auto nearest = nearest_that_fit(job, capacity);
    const auto batch = [&](const Recipe& r) {
      return r.training.micro_batch_size * r.accumulation_steps(ranks) * r.data_ranks(ranks);
    };
    for (const Suggestion& s : nearest) {
      auto changed = sets;
      for (const auto& [key, value] : s.changes) changed.push_back(key + "=" + value);
      const Job fitting = tiny_job(changed, ranks);
      EXPECT_TRUE(memory_of_stages(fitting, capacity)) << fmt::format("{}", fmt::join(changed, " "));
      const bool smaller = numbers_with(job.complete_recipe(), s.changes) == Numbers::smaller_batch;
      EXPECT_EQ(batch(fitting.recipe) < batch(job.recipe), smaller) << fmt::format("{}", fmt::join(changed, " "));
      EXPECT_LE(batch(fitting.recipe), batch(job.recipe)) << fmt::format("{}", fmt::join(changed, " "));
    }
    if (!nearest.empty()) continue;
    ++without;
    for (int other = 0; other < 10; ++other) {
      const auto changed = changed_recipe(draw, sets, job.recipe);
      EXPECT_FALSE(fits(tiny_job(changed, ranks).plan, capacity)) << fmt::format("{}", fmt::join(changed, " "));
    }
  }
  EXPECT_GT(refused, 15);
  EXPECT_GT(without, 3);
  EXPECT_GT(refused - without, 3);
}

}  // namespace
}  // namespace strata::runtime
