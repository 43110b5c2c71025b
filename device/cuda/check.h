#pragma once
#include <cuda_runtime.h>

#include <string>

namespace strata::device::cuda {

// Throws Error naming the call, the device and what CUDA says of it: Exit::does_not_fit if memory ran out,
// Exit::usage if explain() knows what to do, else Exit::failed.
[[noreturn]] void cuda_failed(cudaError_t error, const char* call, const char* file, int line);

// One sentence to act on for an error that lies with the machine rather than with the program: no driver, one too old,
// no GPU, one that is taken or that there is no code for. Empty for all others.
std::string explain(cudaError_t error);
// "13.0" from CUDA's 13000.
std::string version_text(int version);

}  // namespace strata::device::cuda

// Every call of the CUDA runtime goes through this.
#define STRATA_CUDA(call)                                                                \
  do {                                                                                   \
    if (const cudaError_t strata_cuda_error = (call); strata_cuda_error != cudaSuccess)  \
      ::strata::device::cuda::cuda_failed(strata_cuda_error, #call, __FILE__, __LINE__); \
  } while (0)
