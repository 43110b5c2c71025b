#pragma once
// launcher/measure/bench/ compares parts of the program with the least time that this machine allows: a bench_*.cc per
// part, on a Stand (bench_stand.h).

#include "launcher/measure/bench/bench_options.h"

namespace strata::launcher {

// `strata bench`: one part of the program against the least time that this machine allows. `step` and `comm` run under
// mpirun too. Returns the exit code; throws Error.
int bench(const BenchOptions& options);

}  // namespace strata::launcher
