#pragma once
#include "launcher/measure/bench/bench_options.h"

namespace strata::launcher {

// `strata bench io`: write and read speed of options.dirs at the engine's own settings, over options.io_bytes bytes in
// each of options.rounds passes; the first write pass is not counted. Returns the exit code; throws Error.
int bench_io(const BenchOptions& options);

}  // namespace strata::launcher
