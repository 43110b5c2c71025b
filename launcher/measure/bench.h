#pragma once
#include "launcher/measure/bench_options.h"

namespace strata::launcher {

// `strata bench`: one part of the program against the least time that this machine allows. `step` and `comm` run under
// mpirun too. Returns the exit code; throws Error.
int bench(const BenchOptions& options);

}  // namespace strata::launcher
