#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "device/numeric/dtype.h"

// Instructions for tensor cores and asynchronous copies. Fragments are those of mma.m16n8k16. Lane 4 g + t of a warp
// holds: of A [16, 16], rows g and g + 8 at columns 2t, 2t + 1 and those + 8; of B [16, 8], column g at the same four
// rows; of C [16, 8], rows g and g + 8 at columns 2t, 2t + 1. Whole warps call these. The emulation has its own
// version.
namespace strata::device::cuda {

__device__ inline std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// A as above, from rows in shared memory that are `stride` elements apart (16-byte aligned).
template <typename T>
__device__ inline void load_a(std::uint32_t (&a)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(shared_address(from + lane % 16 * stride + lane / 16 * 8))
               : "memory");
}

// B of two neighbouring tiles of 8 columns, {b[0], b[1]} and {b[2], b[3]}, if a column of B is a row in memory.
template <typename T>
__device__ inline void load_b_columns(std::uint32_t (&b)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(shared_address(from + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8))
               : "memory");
}

// The same if a row of B is a row in memory.
template <typename T>
__device__ inline void load_b_rows(std::uint32_t (&b)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(shared_address(from + lane % 16 * stride + lane / 16 * 8))
               : "memory");
}

// c += A B in fp32, for numbers of type T: bf16 or fp16.
template <typename T>
__device__ inline void mma_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  if constexpr (dtype_of<T> == DType::bf16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x, within 2 units in the last place; results below 2^-126 are 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Starts a copy of 16 bytes from global to shared memory (both 16-byte aligned), or of zeros.
__device__ inline void copy_async(void* to, const void* from, bool zeros) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(zeros ? 0 : 16)
               : "memory");
}
// Groups the copies that this thread has started since the previous call.
__device__ inline void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until all but the newest `kInFlight` groups of this thread have arrived.
template <int kInFlight>
__device__ inline void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kInFlight) : "memory");
}

}  // namespace strata::device::cuda
