#pragma once
#include "launcher/measure/bench/bench_options.h"

namespace strata::launcher {

// `strata bench adam`: an optimizer step over options.parameters parameters, bf16 gradient in and bf16 parameter
// out, with fp32 moments against the triad, and then every algorithm and format of moments, in turns.
int bench_adam(const BenchOptions& options);

}  // namespace strata::launcher
