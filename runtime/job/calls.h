#pragma once
#include <cstddef>
#include <cstdint>

#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// A plan lists every call of a unit in a step. This many take a few seconds to plan; in vertical order a plan holds all
// of them at once, so fewer are allowed.
inline constexpr std::int64_t kMostCalls = 1 << 16, kMostVerticalCalls = 1 << 13;

// The calls of a rank's units in a step of this many micro-batches through a model with this many units. The rank has
// the largest stage of parallel.split or, if stages are balanced, about its share.
std::int64_t calls_of(const Recipe& recipe, std::size_t units, std::int64_t micro_batches);
bool plannable(const Recipe& recipe, std::size_t units, std::int64_t micro_batches);
// Throws Error{usage} for a recipe that needs more calls, of one of `ranks` or of all of them, than a plan may have.
void require_plannable(const Recipe& recipe, std::size_t units, std::int64_t micro_batches, int ranks);

}  // namespace strata::runtime
