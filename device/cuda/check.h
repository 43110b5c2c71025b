#pragma once
#include <cuda_runtime.h>

namespace strata::device::cuda {

// Throws Error naming the call and what CUDA says of it: Exit::does_not_fit where memory ran out, else Exit::failed.
[[noreturn]] void cuda_failed(cudaError_t error, const char* call, const char* file, int line);

}  // namespace strata::device::cuda

// Every call of the CUDA runtime goes through this.
#define STRATA_CUDA(call)                                                           \
  do {                                                                              \
    if (const cudaError_t strata_error = (call); strata_error != cudaSuccess)       \
      ::strata::device::cuda::cuda_failed(strata_error, #call, __FILE__, __LINE__); \
  } while (0)
