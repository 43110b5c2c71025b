#pragma once

namespace strata::device::cuda {

// A kernel that does nothing, compiled like all others: if CUDA finds code for it, it finds code for all.
const void* probe_kernel();

}  // namespace strata::device::cuda
