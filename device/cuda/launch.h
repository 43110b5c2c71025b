#pragma once
#include <cuda_runtime.h>

#include <cstddef>

#include "device/cuda/check.h"
#include "device/cuda/kernels/dynamic_shared.cuh"

namespace strata::device {
class Lane;
}

namespace strata::device::cuda {

// The stream of a CUDA lane.
cudaStream_t stream_of(const Lane& lane);

// The shared memory that a kernel may use without an explicit request.
inline constexpr std::size_t kUsualSharedBytes = 48 << 10;

// Queues kernel(args...) on `grid` blocks of `block` threads, each with `shared_bytes` of dynamic shared memory.
template <typename... Parameters, typename... Args>
void launch(Lane& lane, dim3 grid, dim3 block, std::size_t shared_bytes, void (*kernel)(Parameters...), Args... args) {
  cudaLaunchConfig_t config{};
  config.stream = stream_of(lane);  // first: it makes the lane's device current, and the attribute applies to that one
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  if (shared_bytes > kUsualSharedBytes)
    STRATA_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  STRATA_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...));
}

// Queues a copy between any two memories of the host or the device; queues a fill with zero bytes.
inline void copy(Lane& lane, std::byte* to, const std::byte* from, std::size_t bytes) {
  STRATA_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(lane)));
}
inline void fill_zero(Lane& lane, std::byte* to, std::size_t bytes) {
  STRATA_CUDA(cudaMemsetAsync(to, 0, bytes, stream_of(lane)));
}

}  // namespace strata::device::cuda
