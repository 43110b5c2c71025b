#pragma once

namespace strata::launcher {

// GFLOP/s of bf16 products over so many seconds: of the slowest of this machine's GPUs, if there are any and they are
// meant; else of all its cores together.
double products_per_second(double seconds, bool on_gpus);

}  // namespace strata::launcher
