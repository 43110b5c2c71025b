#include <cuda_runtime.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/quantity.h"
#include "device/cpu/backend.h"
#include "device/cuda/backend.h"
#include "device/cuda/check.h"
#include "device/cuda/context.h"

namespace strata::device::cuda {
namespace {

std::string locked_memory_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "none" : bytes_text(limit.rlim_cur);
}

}  // namespace

std::byte* allocate(Device device, std::size_t bytes) {
  use(device);
  std::size_t available = 0, total = 0;
  STRATA_CUDA(cudaMemGetInfo(&available, &total));
  void* data = nullptr;
  cudaError_t error = cudaErrorMemoryAllocation;
  if (bytes <= available) error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    cudaDeviceProp properties{};
    STRATA_CUDA(cudaGetDeviceProperties(&properties, device.ordinal));
    fail(Exit::does_not_fit,
         "the plan takes {} ({} bytes) of GPU {} ({}), which has {} ({} bytes) free of {}: end other programs that use "
         "it (nvidia-smi lists them), or lower memory.device to the free memory",
         bytes_text(bytes), bytes, device.ordinal, properties.name, bytes_text(available), available,
         bytes_text(total));
  }
  STRATA_CUDA(error);
  STRATA_CUDA(cudaMemsetAsync(data, 0, bytes, cudaStreamPerThread));
  STRATA_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  return static_cast<std::byte*>(data);
}

void free(Device device, std::byte* data, std::size_t) noexcept {
  (void)cudaSetDevice(device.ordinal);
  (void)cudaFree(data);
}

void pin(Device device, std::byte* data, std::size_t bytes) {
  use(device);
  const cudaError_t error = cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  if (const std::string text = explain(error); !text.empty()) fail(Exit::usage, "{}", text);
  fail(Exit::does_not_fit,
       "CUDA cannot pin {} ({} bytes) of host memory: {} (limit of locked memory: {}): raise that limit (ulimit -l "
       "unlimited, docker run --ulimit memlock=-1), or lower memory.host",
       bytes_text(bytes), bytes, cudaGetErrorString(error), locked_memory_limit());
}

void unpin(Device device, std::byte* data) noexcept {
  (void)cudaSetDevice(device.ordinal);
  (void)cudaHostUnregister(data);
}

// Maps pages and has CUDA pin them: cudaMallocHost may round sizes up, but a plan counts bytes.
std::byte* allocate_host(Device device, std::size_t bytes) {
  std::byte* const data = cpu::allocate({}, bytes);
  try {
    pin(device, data, bytes);
  } catch (...) {
    cpu::free({}, data, bytes);
    throw;
  }
  return data;
}

void free_host(Device device, std::byte* data, std::size_t bytes) noexcept {
  unpin(device, data);
  cpu::free({}, data, bytes);
}

// The calling thread's default stream, which waits for no lane.
void copy(Device device, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  use(device);
  STRATA_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread));
  STRATA_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
}

}  // namespace strata::device::cuda
