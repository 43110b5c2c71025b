#pragma once

namespace strata::device::testing {

// Runs it in a thread whose stack, and everything that operator new gives out meanwhile, a GPU reads and writes. Its
// result, or -1 where the memory cannot be had.
int run_in_reachable_memory(int (*run)());

}  // namespace strata::device::testing
