#pragma once
#include <cuda_runtime.h>

#include <string>

namespace strata::device::cuda {

// Throws an Error with the call, the device and CUDA's message: Exit::does_not_fit if memory ran out, Exit::usage if
// explain() knows what to do, otherwise Exit::failed.
[[noreturn]] void cuda_failed(cudaError_t error, const char* call, const char* file, int line);

// One sentence of advice for an error of the machine rather than the program: no driver, a driver that is too old, no
// GPU, a GPU that another process has taken, or one for which the program has no code. Empty for all other errors.
std::string explain(cudaError_t error);
// "13.0" for CUDA's 13000.
std::string version_text(int version);

}  // namespace strata::device::cuda

// Every call of the CUDA runtime goes through this macro.
#define STRATA_CUDA(call)                                                                \
  do {                                                                                   \
    if (const cudaError_t strata_cuda_error = (call); strata_cuda_error != cudaSuccess)  \
      ::strata::device::cuda::cuda_failed(strata_cuda_error, #call, __FILE__, __LINE__); \
  } while (0)
