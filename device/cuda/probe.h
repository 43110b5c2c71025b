#pragma once

namespace strata::device::cuda {

// A kernel compiled as all are, which does nothing: CUDA finds code for it where it finds code for any.
const void* probe_kernel();

}  // namespace strata::device::cuda
