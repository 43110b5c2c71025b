#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/job/make_job.h"

namespace strata::runtime {

// A recipe and the changes that led to it, for the search for recipes that fit (suggestion.h).
using Changes = std::vector<std::pair<std::string, std::string>>;  // key, value
struct Candidate {
  Recipe recipe;
  Changes changes;
};

// What changes do to a run's numbers: nothing, a different rounding of the same sums, or different losses.
enum class Numbers : std::uint8_t { same, rounded, other };
Numbers numbers_with(const Changes& changes);

// A change of this key lets the plan choose the tile size; its value is empty until there is a plan.
inline constexpr const char* kTileKey = "memory.tile";

// Appends every candidate that has one change more than `from`. `bf16`: the precision may be changed as well.
void add_changes(const Candidate& from, int ranks, Purpose purpose, bool bf16, std::vector<Candidate>& out);

// The tiers that hold parameters, gradients, optimizer state and activations.
using Tiers = std::array<Tier, 4>;
// Returns every choice of tiers that the recipe allows, those with the fewest changes first.
std::vector<Tiers> choices_of_tiers(const Recipe& recipe, Purpose purpose);

// One change of a candidate, and the function that makes it.
struct Step {
  Changes changes;
  std::function<void(Recipe&)> make;
};
// Returns all changes that save memory, as steps of which each can be left out again: sharding, recomputation, the
// given tiers, no prefetch. `one_by_one` adds micro-batches of one sequence at the same global batch; that takes more
// memory if the step had a single micro-batch, whose gradients need no sums.
std::vector<Step> all_steps(const Recipe& recipe, int ranks, Purpose purpose, const Tiers& tiers, bool one_by_one,
                            bool bf16);
Candidate candidate_of(const Recipe& recipe, const std::vector<Step>& steps);

}  // namespace strata::runtime
