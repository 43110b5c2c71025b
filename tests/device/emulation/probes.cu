#include "device/cuda/kernels/mma.cuh"
#include "device/cuda/launch.h"
#include "tests/device/emulation/probes.h"

namespace strata::device::emulation {
namespace {

constexpr unsigned kAll = 0xffffffffu;

__global__ void sum_kernel(const std::uint32_t* in, std::uint32_t* out) {
  __shared__ std::uint32_t sums[8];
  auto* copy = cuda::dynamic_shared<std::uint32_t>();
  const unsigned t = threadIdx.x;
  copy[t] = t < 200 ? in[200 * blockIdx.x + t] : 0;
  __syncthreads();
  std::uint32_t sum = copy[blockDim.x - 1 - t];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
  if (t % 32 == 0) sums[t / 32] = sum;
  __syncthreads();
  if (t < 32) {
    sum = __reduce_add_sync(kAll, t < 7 ? sums[t] : 0u);
    if (t == 0) out[blockIdx.x] = sum;
  }
}

__global__ void order_kernel(std::uint32_t* order, unsigned* count) {
  if (threadIdx.x == 0) order[atomicAdd(count, 1u)] = blockIdx.x;
}

__global__ void fresh_kernel(std::uint32_t* out) {
  __shared__ std::uint32_t never[4];
  const unsigned t = threadIdx.x;
  if (t < 4) out[4 * blockIdx.x + t] = never[t] & cuda::dynamic_shared<std::uint32_t>()[t];
  __syncthreads();
  if (t < 4) never[t] = cuda::dynamic_shared<std::uint32_t>()[t] = 0;
}

__global__ void reverse_kernel(const float* in, float* out) {
  __shared__ float s[256];
  const unsigned t = threadIdx.x;
  s[t] = in[t];
  out[t] = s[blockDim.x - 1 - t];
}

__global__ void copy_kernel(bool await, const float* in, float* out) {
  __shared__ __align__(16) float s[128];
  const unsigned at = 4 * threadIdx.x;
  cuda::copy_async(s + at, in + at, false);
  cuda::end_copy_group();
  if (await) cuda::await_copies<0>();
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 128; i += blockDim.x) out[i] = s[i];
}

__global__ void wrong_kernel(Wrong wrong) {
  const unsigned t = threadIdx.x;
  switch (wrong) {
    case Wrong::divergent_barrier:
      if (t < 7)
        __syncthreads();
      else
        __syncthreads();
      break;
    case Wrong::left_before_barrier:
      if (t == 40) return;
      __syncthreads();
      break;
    case Wrong::lane_stays_away:
      if (t != 3) __syncwarp();
      break;
    case Wrong::lane_reads_absent:
      if (t < 16) (void)__shfl_sync(0xffffu, t, 20);
      break;
    case Wrong::shared_overrun:
      cuda::dynamic_shared<unsigned>()[t + 1] = 0;
      break;
    case Wrong::trap:
      if (t == 5) __trap();
      break;
  }
}

__global__ void empty_kernel() {}

}  // namespace

void sum_blocks(Lane& lane, unsigned blocks, const std::uint32_t* in, std::uint32_t* out) {
  cuda::launch(lane, blocks, 224, 224 * sizeof(std::uint32_t), sum_kernel, in, out);
}
void note_order(Lane& lane, unsigned blocks, std::uint32_t* order, unsigned* count) {
  cuda::launch(lane, blocks, 32, 0, order_kernel, order, count);
}
void read_fresh_shared(Lane& lane, unsigned blocks, std::uint32_t* out) {
  cuda::launch(lane, blocks, 32, 4 * sizeof(std::uint32_t), fresh_kernel, out);
}
void reverse_without_barrier(Lane& lane, unsigned n, const float* in, float* out) {
  cuda::launch(lane, 1, n, 0, reverse_kernel, in, out);
}
void copy_through_shared(Lane& lane, bool await, const float* in, float* out) {
  cuda::launch(lane, 1, 32, 0, copy_kernel, await, in, out);
}
void misbehave(Lane& lane, Wrong wrong) {
  cuda::launch(lane, 1, 64, 64 * sizeof(unsigned), wrong_kernel, wrong);
}
void too_many_threads(Lane& lane) {
  cuda::launch(lane, 1, 1025, 0, empty_kernel);
}
void too_much_shared(Lane& lane) {
  cuda::launch(lane, 1, 32, 228 * 1024, empty_kernel);
}

}  // namespace strata::device::emulation
