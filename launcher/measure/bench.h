#pragma once
// launcher/measure/ times this machine: `bench` compares parts of the program with the least time that the machine
// allows (one bench_*.cc per part, on a Stand of bench_stand.h), `calibrate` writes the machine file that `plan
// --machine` reads (calibrate.h).

#include "launcher/measure/bench_options.h"

namespace strata::launcher {

// `strata bench`: one part of the program against the least time that this machine allows. `step` and `comm` run under
// mpirun too. Returns the exit code; throws Error.
int bench(const BenchOptions& options);

}  // namespace strata::launcher
