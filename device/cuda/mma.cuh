#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "device/cuda/numbers.cuh"

// The instructions of tensor cores and asynchronous copies, as PTX defines them; beside each, what it means, for
// compilers of other machines. Fragments are those of mma.m16n8k16: lane 4 g + t of a warp holds, of A [16, 16], rows g
// and g + 8 at columns 2t, 2t + 1 and those + 8; of B [16, 8], column g at the same four; of C [16, 8], rows g and
// g + 8 at columns 2t, 2t + 1. Called by whole warps.
namespace strata::device::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

__device__ inline int lane_index() {
  return static_cast<int>(threadIdx.x % kWarp);
}

// Two numbers of a 16-bit type in the order of memory.
template <typename T>
__device__ inline std::uint32_t pair(T low, T high) {
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
}
template <typename T>
__device__ inline std::uint32_t rounded_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  std::uint32_t both;
  if constexpr (dtype_of<T> == DType::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return pair(from_float<T>(low), from_float<T>(high));
#endif
}

// 2^x, within 2 units in the last place; results below 2^-126 are 0.
__device__ inline float fast_exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

// A as above, from rows of shared memory `stride` elements apart (16-byte aligned).
template <typename T>
__device__ inline void load_a(std::uint32_t (&a)[4], const T* from, int stride) {
  const int lane = lane_index();
#ifdef __CUDA_ARCH__
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(from + lane % 16 * stride + lane / 16 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address)
               : "memory");
#else
  for (int i = 0; i < 4; ++i) {
    const T* const at = from + (lane / 4 + i % 2 * 8) * stride + lane % 4 * 2 + i / 2 * 8;
    a[i] = pair(at[0], at[1]);
  }
#endif
}

// B of two neighbouring tiles of 8 columns: {b[0], b[1]} and {b[2], b[3]}. A column of B is a row in memory.
template <typename T>
__device__ inline void load_b_columns(std::uint32_t (&b)[4], const T* from, int stride) {
  const int lane = lane_index();
#ifdef __CUDA_ARCH__
  const auto address = static_cast<std::uint32_t>(
      __cvta_generic_to_shared(from + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(address)
               : "memory");
#else
  for (int i = 0; i < 4; ++i) {
    const T* const at = from + (lane / 4 + i / 2 * 8) * stride + lane % 4 * 2 + i % 2 * 8;
    b[i] = pair(at[0], at[1]);
  }
#endif
}

// The same where a row of B is a row in memory.
template <typename T>
__device__ inline void load_b_rows(std::uint32_t (&b)[4], const T* from, int stride) {
  const int lane = lane_index();
#ifdef __CUDA_ARCH__
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(from + lane % 16 * stride + lane / 16 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(address)
               : "memory");
#else
  for (int i = 0; i < 4; ++i) {
    const T* const at = from + (lane % 4 * 2 + i % 2 * 8) * stride + lane / 4 + i / 2 * 8;
    b[i] = pair(at[0], at[stride]);
  }
#endif
}

// c += A B in fp32, of numbers of type T (bf16 or fp16).
template <typename T>
__device__ inline void mma_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#ifdef __CUDA_ARCH__
  if constexpr (dtype_of<T> == DType::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  const int lane = lane_index(), g = lane / 4, t = lane % 4;
  const auto low = [](std::uint32_t both) { return to_float(T{static_cast<std::uint16_t>(both)}); };
  const auto high = [](std::uint32_t both) { return to_float(T{static_cast<std::uint16_t>(both >> 16)}); };
  for (int half = 0; half < 2; ++half) {  // of the 16 terms
    for (int other = 0; other < 4; ++other) {
      std::uint32_t rows[2], columns[2];
      for (int i = 0; i < 2; ++i) rows[i] = __shfl_sync(kAllLanes, a[i + 2 * half], 4 * g + other);
      for (int i = 0; i < 2; ++i) columns[i] = __shfl_sync(kAllLanes, half == 0 ? b0 : b1, 4 * (2 * t + i) + other);
      for (int i = 0; i < 4; ++i)
        c[i] += low(rows[i / 2]) * low(columns[i % 2]) + high(rows[i / 2]) * high(columns[i % 2]);
    }
  }
#endif
}

// Starts the copy of 16 bytes from global to shared memory, or of zeros; both 16-byte aligned.
__device__ inline void copy_async(void* to, const void* from, bool zeros) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(zeros ? 0 : 16)
      : "memory");
#else
  struct alignas(16) Bytes {
    unsigned char at[16];
  };
  *static_cast<Bytes*>(to) = zeros ? Bytes{} : *static_cast<const Bytes*>(from);
#endif
}
// The copies that this thread started since the last time become one group.
__device__ inline void end_copy_group() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until all but the newest `kPending` groups of this thread have arrived.
template <int kPending>
__device__ inline void await_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace strata::device::cuda
