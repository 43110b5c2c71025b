#pragma once
// launcher/measure/memory/ is what `bench memory` compares: settings of one step (here), and their results as a table
// (memory_table.h). report/memory_chart.h draws them.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/numeric/dtype.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// One way to run the same step, for comparison in `bench memory`.
struct MemorySetting {
  device::DType precision;
  runtime::Recompute::Kind recompute;  // none, sqrt or block
  int accumulation;                    // micro-batches that the step's batch is split into
  runtime::Tier optimizer;

  // Whether both settings are promised the same bits. Another precision, or other micro-batches, are other numerics.
  bool same_numerics(const MemorySetting& other) const {
    return precision == other.precision && accumulation == other.accumulation;
  }
};
// "none", "sqrt", "block".
std::string_view name_of(runtime::Recompute::Kind recompute);

// Every combination; each one with the optimizer on the device is followed by the same with the optimizer elsewhere.
// `only` ("KEY=A,B" for precision, recompute, accumulation and optimizer) excludes others; without has_drive those on
// NVMe are left out. Throws Error{usage} if an `only` is not understood.
std::vector<MemorySetting> memory_settings(std::span<const std::string> only, bool has_drive);

// The sequences in a step of the recipe on one rank; 4 if it says nothing about its batch.
std::int64_t batch_of(const runtime::Recipe& recipe);

// The recipe with this setting and `steps` steps, without checkpoints, evaluations and control. Throws Error{usage} if
// its batch cannot be divided by the accumulation.
runtime::Recipe recipe_with(runtime::Recipe recipe, const MemorySetting& setting, std::int64_t batch, int steps);

}  // namespace strata::launcher
