#pragma once
#include <cuda_runtime.h>

#include "device/numeric/dtype.h"
#include "tests/device/emulation/block.h"

// Replaces device/cuda/kernels/mma.cuh with the meaning of its instructions.
namespace strata::device::cuda {

template <typename T>
std::uint32_t both(T low, T high) {
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
}

template <typename T>
void load_a(std::uint32_t (&a)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i) {
    const T* const at = from + (lane / 4 + i % 2 * 8) * stride + lane % 4 * 2 + i / 2 * 8;
    a[i] = both(at[0], at[1]);
  }
}
template <typename T>
void load_b_columns(std::uint32_t (&b)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i) {
    const T* const at = from + (lane / 4 + i / 2 * 8) * stride + lane % 4 * 2 + i % 2 * 8;
    b[i] = both(at[0], at[1]);
  }
}
template <typename T>
void load_b_rows(std::uint32_t (&b)[4], const T* from, int stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i) {
    const T* const at = from + (lane % 4 * 2 + i % 2 * 8) * stride + lane / 4 + i / 2 * 8;
    b[i] = both(at[0], at[stride]);
  }
}

// Each lane stores its fragments for the warp's other lanes to read. Attention tests spend most of their time here, so
// it is not checked for undefined behaviour.
template <typename T>
[[gnu::no_sanitize_undefined]] void mma_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                std::uint32_t b1) {
  struct Fragments {
    float a[4][2], b[2][2];
  };
  static Fragments lanes[32][32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto spread = [](std::uint32_t pair, float(&to)[2]) {
    for (int i = 0; i < 2; ++i) to[i] = to_float(T{static_cast<std::uint16_t>(pair >> 16 * i)});
  };
  Fragments& mine = lanes[warp][lane];
  for (int i = 0; i < 4; ++i) spread(a[i], mine.a[i]);
  spread(b0, mine.b[0]);
  spread(b1, mine.b[1]);
  __syncwarp();
  const Fragments *rows = &lanes[warp][4 * g], *columns = &lanes[warp][8 * t];
  for (unsigned k = 0; k < 16; ++k) {
    const unsigned other = k % 8 / 2, half = k / 8;
    for (unsigned i = 0; i < 4; ++i)
      c[i] += rows[other].a[i / 2 + 2 * half][k % 2] * columns[4 * (i % 2) + other].b[half][k % 2];
  }
  __syncwarp();
}

inline float fast_exp2(float x) {
  return std::exp2(x);
}

inline void copy_async(void* to, const void* from, bool zeros) {
  emulation::copy_async(static_cast<emulation::Bytes16*>(to), static_cast<const emulation::Bytes16*>(from), zeros);
}
inline void end_copy_group() {
  emulation::end_copy_group();
}
template <int kInFlight>
void await_copies() {
  emulation::await_copies(kInFlight);
}

}  // namespace strata::device::cuda
