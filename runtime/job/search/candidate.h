#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/job/make_job.h"
#include "runtime/plan/layout/layout.h"

namespace strata::runtime {

// A recipe and the changes that led to it, for the search for recipes that fit (suggestion.h).
using Changes = std::vector<std::pair<std::string, std::string>>;  // key, value
struct Candidate {
  Recipe recipe;
  Changes changes;
};

// How changes affect a run's numbers: not at all; the same sums are rounded differently; in addition, dropout uses
// other random numbers; losses differ; or they differ because a step has fewer sequences.
enum class Numbers : std::uint8_t { same, rounded, other_dropout, other, smaller_batch };
Numbers numbers_with(const Recipe& recipe, const Changes& changes);

// A change of this key lets the plan choose the tile size; its value is empty until the plan exists.
inline constexpr const char* kTileKey = "memory.tile";

// The scope of a search: which changes it may make.
struct Scope {
  int ranks = 1;
  Purpose purpose = Purpose::train;
  bool bf16 = false;      // the precision may be changed as well
  std::size_t width = 0;  // the model's width (Model::hidden)
};

// Appends every candidate that has one more change than `from`.
void add_changes(const Candidate& from, const Scope& scope, std::vector<Candidate>& out);

// The tiers that hold parameters, gradients, optimizer state and activations.
using Tiers = std::array<Tier, 4>;
// Returns every choice of tiers that the recipe allows, those with the fewest changes first.
std::vector<Tiers> choices_of_tiers(const Recipe& recipe, Purpose purpose);

// One change of a candidate, and the function that makes it.
struct Step {
  Changes changes;
  std::function<void(Recipe&)> make;
};
// Returns all changes that save memory, as steps that can be left out one by one: sharding, no groups with copies of
// state, recomputation, the given tiers, no prefetch. `one_by_one` adds micro-batches of one sequence, or of the fewest
// whose rows ranks can divide, at the same global batch. That takes more memory if the step had a single micro-batch,
// because only several need gradient sums.
std::vector<Step> all_steps(const Recipe& recipe, const Scope& scope, const Tiers& tiers, bool one_by_one);
Candidate candidate_of(const Recipe& recipe, const std::vector<Step>& steps);

// The layout of a training run's state on these ranks, without a plan. Throws Error if the model cannot be cut as the
// recipe says.
Layout layout_of(const Workload& workload, int ranks);
// True if parameters, gradients and optimizer state of a training run with this layout, without anything else, fit
// their tiers. Takes no time and needs no plan. If false, no plan of the recipe fits.
bool state_may_fit(const Recipe& recipe, const Layout& layout, const Capacity& capacity);
// False if no plan of the recipe fits, or if each of several ranks would update more elements than any step can hide.
// Such a plan is not worth making: for 1T unsharded parameters it has millions of tasks and takes a minute.
bool is_worth_planning(const Recipe& recipe, const Layout& layout, const Capacity& capacity);

}  // namespace strata::runtime
