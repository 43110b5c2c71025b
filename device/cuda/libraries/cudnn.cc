#include "device/cuda/libraries/cudnn.h"

#pragma GCC visibility push(hidden)
#include <nvrtc.h>
#pragma GCC visibility pop

#include "base/error.h"
#include "device/cuda/libraries/library.h"

namespace strata::device::cuda {

const Cudnn& cudnn() {
  static const Cudnn functions = [] {
    const Library library = Library::open(cudnn_name());
    Cudnn f{};
#define X(name) f.name = library.function<decltype(::name)>(#name);
    STRATA_CUDNN_FUNCTIONS(X)
#undef X
    return f;
  }();
  return functions;
}

namespace {
void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  int ordinal = 0;
  (void)cudaGetDevice(&ordinal);
  fail(Exit::failed, "{} on GPU {}: {}", call, ordinal, cudnn().cudnnGetErrorString(status));
}
}  // namespace

CudnnHandle make_cudnn_handle(cudaStream_t stream) {
  cudnnHandle_t handle = nullptr;
  check(cudnn().cudnnCreate(&handle), "cudnnCreate");
  CudnnHandle owner(handle);
  check(cudnn().cudnnSetStream(handle, stream), "cudnnSetStream");
  return owner;
}

}  // namespace strata::device::cuda

using strata::device::cuda::cudnn;

// Functions that the frontend calls. They are hidden, so that cuDNN's own libraries do not bind to them.
extern "C" {
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return cudnn().cudnnGetStream(handle, stream);
}
std::size_t cudnnGetVersion() {
  return cudnn().cudnnGetVersion();
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return cudnn().cudnnGetErrorString(status);
}
void cudnnGetLastErrorString(char* message, std::size_t size) {
  cudnn().cudnnGetLastErrorString(message, size);
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return cudnn().cudnnBackendCreateDescriptor(type, descriptor);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return cudnn().cudnnBackendDestroyDescriptor(descriptor);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return cudnn().cudnnBackendFinalize(descriptor);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* elements) {
  return cudnn().cudnnBackendSetAttribute(descriptor, name, type, count, elements);
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t requested, std::int64_t* count,
                                       void* elements) {
  return cudnn().cudnnBackendGetAttribute(descriptor, name, type, requested, count, elements);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return cudnn().cudnnBackendExecute(handle, plan, pack);
}

// Engines of the frontend that compile at run time refer to these; we do not use them.
nvrtcResult nvrtcCreateProgram(nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, std::size_t*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, std::size_t*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char*) {
  return NVRTC_ERROR_INTERNAL_ERROR;
}
}
