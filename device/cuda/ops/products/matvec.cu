#include <cstdint>

#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/kernels/reduce.cuh"
#include "device/cuda/launch.h"
#include "device/ops/products/product.h"

namespace strata::device::cuda {
namespace {

constexpr int kRows = 4;       // rows of a `rows` block: one per warp
constexpr int kThreads = 256;  // threads of a `columns` block
constexpr int kPacks = 4;      // packs across a `columns` block: 64 bytes of each row of W

template <typename T>
struct Matvec {
  const T *w, *x, *bias;  // bias may be null
  std::size_t out, in;
  bool aligned;  // W, its rows and x start at multiples of 16 bytes
};

template <typename T>
__device__ float dot(const Pack<T>& a, const Pack<T>& b, float sum) {
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) sum = fmaf(to_float(a.at[i]), to_float(b.at[i]), sum);
  return sum;
}

template <typename T, typename Y>
__device__ void finish(const Matvec<T>& m, Y* y, std::size_t o, float sum) {
  y[o] = from_float<Y>(m.bias ? sum + to_float(m.bias[o]) : sum);
}

// One warp per row of W. Its lanes take packs in turn, with four in flight, and add up by halves. The order does not
// depend on the alignment.
template <typename T, typename Y>
__global__ void __launch_bounds__(kRows* kWarp) rows(Matvec<T> m, Y* y) {
  constexpr int kSize = Pack<T>::kSize, kStep = kWarp * kSize, kAhead = 4;
  const std::size_t o = std::size_t{blockIdx.x} * kRows + threadIdx.x / kWarp;
  if (o >= m.out) return;  // the whole warp returns
  const unsigned lane = threadIdx.x % kWarp;
  const T* const row = m.w + o * m.in;
  float sum = 0;
  std::size_t at = lane * kSize;
  for (; at + (kAhead - 1) * kStep + kSize <= m.in; at += kAhead * kStep) {
    Pack<T> w[kAhead], x[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) w[i] = load_some(row, at + i * kStep, m.in, m.aligned);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) x[i] = load_some(m.x, at + i * kStep, m.in, m.aligned);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum = dot(w[i], x[i], sum);
  }
  for (; at < m.in; at += kStep)
    sum = dot(load_some(row, at, m.in, m.aligned), load_some(m.x, at, m.in, m.aligned), sum);
  sum = sum_lanes(sum);
  if (lane == 0) finish(m, y, o, sum);
}

// W as [in, out]: a block takes kPacks packs of outputs. Its threads share the rows, and their sums are added in the
// threads' order.
template <typename T, typename Y>
__global__ void __launch_bounds__(kThreads) columns(Matvec<T> m, Y* y) {
  constexpr int kSize = Pack<T>::kSize, kShares = kThreads / kPacks, kColumns = kPacks * kSize;
  __shared__ float sums[kShares][kColumns];
  const std::size_t first = std::size_t{blockIdx.x} * kColumns, at = first + threadIdx.x % kPacks * kSize;
  const unsigned share = threadIdx.x / kPacks;
  float sum[kSize] = {};
  if (at < m.out) {
#pragma unroll 4
    for (std::size_t i = share; i < m.in; i += kShares) {
      const Pack<T> w = load_some(m.w + i * m.out, at, m.out, m.aligned);
      const float x = to_float(m.x[i]);
#pragma unroll
      for (int e = 0; e < kSize; ++e) sum[e] = fmaf(to_float(w.at[e]), x, sum[e]);
    }
  }
  for (int e = 0; e < kSize; ++e) sums[share][threadIdx.x % kPacks * kSize + e] = sum[e];
  __syncthreads();
  if (threadIdx.x >= kColumns || first + threadIdx.x >= m.out) return;
  float total = 0;
  for (int s = 0; s < kShares; ++s) total += sums[s][threadIdx.x];
  finish(m, y, first + threadIdx.x, total);
}

bool aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}
unsigned blocks(std::size_t n, std::size_t each) {
  return static_cast<unsigned>((n + each - 1) / each);
}

template <typename T, typename Y>
void run(Lane& lane, const MatvecShape& shape, ConstView w, ConstView x, ConstView bias, View y) {
  const std::size_t row = (shape.input_major ? shape.out : shape.in) * sizeof(T);
  const Matvec<T> m{w.as<T>(), x.as<T>(), bias ? bias.as<T>() : nullptr,
                    shape.out, shape.in,  aligned(w.data) && row % 16 == 0 && (shape.input_major || aligned(x.data))};
  if (shape.input_major)
    launch(lane, blocks(shape.out, kPacks * Pack<T>::kSize), kThreads, 0, columns<T, Y>, m, y.as<Y>());
  else
    launch(lane, blocks(shape.out, kRows), kRows * kWarp, 0, rows<T, Y>, m, y.as<Y>());
}

}  // namespace

void matvec(Lane& lane, const MatvecShape& shape, ConstView w, ConstView x, ConstView bias, View y) {
  if (shape.out == 0) return;
  visit(w.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (y.dtype == DType::fp32)
      run<T, float>(lane, shape, w, x, bias, y);
    else
      run<T, T>(lane, shape, w, x, bias, y);
  });
}

}  // namespace strata::device::cuda
