#pragma once
#include "launcher/measure/bench/bench_options.h"

namespace strata::launcher {

// `strata bench memory`: the recipe's step with every combination of precision, recomputation, accumulation and place
// of the optimizer, each planned here and run by a process of its own; as a table, JSON and a picture. Returns the exit
// code: failed if a run failed, or if bits differ that are promised to be the same. Throws Error.
int bench_memory(const BenchOptions& options);

}  // namespace strata::launcher
