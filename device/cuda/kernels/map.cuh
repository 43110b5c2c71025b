#pragma once
#include <cuda_runtime.h>

#include <cstddef>

#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/launch.h"

// Work that consists of equal and independent units of kN elements. Accesses have 128 bits if operands are aligned,
// otherwise they are element by element. A struct F defines a unit's work, with
//   template <int kN> auto load(std::size_t unit) const;             reads its operands
//   template <int kN> void store(std::size_t unit, const auto&) const;  computes and writes; may overwrite what it read
namespace strata::device::cuda {

inline constexpr int kMapThreads = 256;

// A thread reads all of its kPacks units before it writes one, so that enough bytes are in flight.
template <int kN, int kPacks, typename F>
__global__ void __launch_bounds__(kMapThreads) map_kernel(const F f, std::size_t begin, std::size_t end) {
  using Operands = decltype(f.template load<kN>(0));
  const std::size_t first = begin + std::size_t{blockIdx.x} * (kMapThreads * kPacks) + threadIdx.x;
  if (first + (kPacks - 1) * kMapThreads < end) {
    Operands x[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) x[p] = f.template load<kN>(first + p * kMapThreads);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) f.template store<kN>(first + p * kMapThreads, x[p]);
  } else {
    for (std::size_t unit = first; unit < end; unit += kMapThreads)
      f.template store<kN>(unit, f.template load<kN>(unit));
  }
}

// Units [begin, end) of kN elements.
template <int kN, int kPacks, typename F>
void map_units(Lane& lane, const F& f, std::size_t begin, std::size_t end) {
  constexpr std::size_t kPerBlock = kMapThreads * kPacks;
  if (begin == end) return;
  const auto blocks = static_cast<unsigned>((end - begin + kPerBlock - 1) / kPerBlock);
  launch(lane, blocks, kMapThreads, 0, map_kernel<kN, kPacks, F>, f, begin, end);
}

// Elements [0, n), in which unit u begins at u * kN. packed: the operands are aligned.
template <int kN, int kPacks, typename F>
void map_elements(Lane& lane, const F& f, std::size_t n, bool packed) {
  const std::size_t whole = packed ? n / kN : 0;
  map_units<kN, kPacks>(lane, f, 0, whole);
  map_units<1, kPacks>(lane, f, whole * kN, n);
}

// The units of rows with `per_row` units each.
struct RowUnit {
  std::size_t row;
  unsigned at;
};
__device__ inline RowUnit row_unit(std::size_t unit, unsigned per_row) {
  if (unit <= 0xffffffffu) {  // a 64-bit division takes three times as long
    const auto u = static_cast<unsigned>(unit);
    return {u / per_row, u % per_row};
  }
  return {unit / per_row, static_cast<unsigned>(unit % per_row)};
}

}  // namespace strata::device::cuda
