#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/job/make_job.h"

namespace strata::runtime {

// A recipe with some changes to its keys, for the search of what would fit (suggestion.h).
using Changes = std::vector<std::pair<std::string, std::string>>;  // key, value
struct Candidate {
  Recipe recipe;
  Changes changes;
};

// What changes do to the numbers of a run: nothing, another rounding of the same sums, or other losses.
enum class Numbers : std::uint8_t { same, rounded, other };
Numbers numbers_with(const Changes& changes);

// A change of this key lets the plan choose the tiles; its value is empty until there is a plan.
inline constexpr const char* kTileKey = "memory.tile";

// Adds every candidate with one change more than `from`. bf16: whether another precision may be among the changes.
void add_changes(const Candidate& from, int ranks, Purpose purpose, bool bf16, std::vector<Candidate>& out);

// Where a run keeps parameters, gradients, optimizer state and activations.
using Tiers = std::array<Tier, 4>;
// Every choice of tiers that the recipe allows, those first that change the fewest.
std::vector<Tiers> choices_of_tiers(const Recipe& recipe, Purpose purpose);

// One change of a candidate, and how it is made.
struct Step {
  Changes changes;
  std::function<void(Recipe&)> make;
};
// All that takes less memory, as steps of which each may be left out again: sharded, recomputed, in these tiers,
// nothing prefetched; one_by_one: sequence by sequence with the global batch kept, which is more where a step had one
// micro-batch alone, whose gradients need no sums.
std::vector<Step> all_steps(const Recipe& recipe, int ranks, Purpose purpose, const Tiers& tiers, bool one_by_one,
                            bool bf16);
Candidate candidate_of(const Recipe& recipe, const std::vector<Step>& steps);

}  // namespace strata::runtime
