#pragma once

namespace strata::launcher {

// GFLOP/s of bf16 products on all cores of this machine, over so many seconds.
double products_per_second(double seconds);

}  // namespace strata::launcher
