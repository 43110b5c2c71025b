#pragma once
#pragma GCC visibility push(hidden)
#include <cudnn.h>
#pragma GCC visibility pop

#include <memory>

namespace strata::device::cuda {

// The cuDNN functions that are called, mostly by the frontend's headers, which call them by name. cudnn.cc defines each
// as a call into the library, which is found at the first call. Throws Error{usage}: see Library::open.
// clang-format off
#define STRATA_CUDNN_FUNCTIONS(X) \
  X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) X(cudnnGetStream) X(cudnnGetVersion) X(cudnnGetErrorString) \
  X(cudnnGetLastErrorString) X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) \
  X(cudnnBackendFinalize) X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendExecute)
// clang-format on
struct Cudnn {
#define X(name) decltype(::name)* name;
  STRATA_CUDNN_FUNCTIONS(X)
#undef X
};
const Cudnn& cudnn();

struct DestroyCudnn {
  void operator()(cudnnHandle_t p) const noexcept { (void)cudnn().cudnnDestroy(p); }
};
using CudnnHandle = std::unique_ptr<cudnnContext, DestroyCudnn>;

// Creates a handle for the current device; its work is queued in `stream`.
CudnnHandle make_cudnn_handle(cudaStream_t stream);

}  // namespace strata::device::cuda
