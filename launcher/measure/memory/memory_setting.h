#pragma once
// launcher/measure/memory/ is what `bench memory` shows: settings of one step (here), and what each came to as a table
// (memory_table.h). report/memory_chart.h draws it.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/numeric/dtype.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// One way to run the same step: what `bench memory` compares.
struct MemorySetting {
  device::DType precision;
  runtime::Recompute::Kind recompute;  // none, sqrt or block
  int accumulation;                    // micro-batches that the step's batch is cut into
  runtime::Tier optimizer;

  // Settings of which the same bits are promised: another precision, and other micro-batches, are other numerics.
  bool same_numerics(const MemorySetting& other) const {
    return precision == other.precision && accumulation == other.accumulation;
  }
};
// "none", "sqrt", "block".
std::string_view name_of(runtime::Recompute::Kind recompute);

// Every combination, those on the same device first, and below each the same with the optimizer elsewhere; `only`
// ("KEY=A,B" of precision, recompute, accumulation and optimizer) leaves others out, and so does a recipe without
// memory.nvme those on NVMe. Throws Error{usage} for an `only` that is not one.
std::vector<MemorySetting> memory_settings(std::span<const std::string> only, bool has_drive);

// Sequences of a step of the recipe on one rank; 4 if it says nothing of its batch.
std::int64_t batch_of(const runtime::Recipe& recipe);

// The recipe with a setting and `steps` steps, which keeps nothing and tells nobody. Throws Error{usage} if its batch
// does not divide by the accumulation.
runtime::Recipe recipe_with(runtime::Recipe recipe, const MemorySetting& setting, std::int64_t batch, int steps);

}  // namespace strata::launcher
