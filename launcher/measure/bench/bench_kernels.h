#pragma once
#include "launcher/measure/bench/bench_options.h"

namespace strata::launcher {

// `strata bench kernels`: the operations that memory bounds, on the device that --set device.kind names, each against a
// plain copy there.
int bench_kernels(const BenchOptions& options);

}  // namespace strata::launcher
