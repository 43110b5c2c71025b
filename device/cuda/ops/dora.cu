#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/launch.h"
#include "device/ops/dora.h"

namespace strata::device::cuda {
namespace {

constexpr unsigned kThreads = 128;

// One block of threads per output: its threads take every kThreads-th input, and their sums are added in order.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_squares(const T* w, const T* a, const T* b, const DoraShape shape, float* squares) {
  __shared__ float sums[kThreads];
  const std::size_t o = blockIdx.x, rank = shape.rank, in = shape.in;
  float sum = 0;
  for (std::size_t i = threadIdx.x; i < in; i += kThreads) {
    float v = to_float(w[shape.input_major ? i * shape.out + o : o * in + i]);
    for (std::size_t r = 0; r < rank; ++r) v += shape.scale * to_float(b[o * rank + r]) * to_float(a[r * in + i]);
    sum += v * v;
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned t = 1; t < kThreads; ++t) sum += sums[t];
  squares[o] = sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    divide_by_norms(const float* squares, const T* magnitude, std::size_t count, float* norms, float* scales) {
  const std::size_t o = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (o >= count) return;
  const float norm = to_float(from_float<T>(sqrtf(squares[o])));
  norms[o] = norm;
  scales[o] = norm > 0 ? to_float(magnitude[o]) / norm : 0;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) scale_row(const T* x, const float* scales, const T* bias, const T* added,
                                                      float sign, std::size_t columns, std::size_t stride, T* out) {
  const std::size_t row = std::size_t{blockIdx.x} * stride;
  for (std::size_t c = threadIdx.x; c < columns; c += kThreads) {
    float v = to_float(x[row + c]);
    if (scales) v *= scales[c];
    if (bias) v += to_float(bias[c]);
    if (added) v += sign * to_float(added[row + c]);
    out[row + c] = from_float<T>(v);
  }
}

// 32 columns side by side, and kShares rows of threads that take every kShares-th row; their sums are added in order.
constexpr unsigned kSide = 32, kShares = 8;

template <typename T, typename Y>
__global__ void __launch_bounds__(kSide* kShares)
    column_dots(const T* x, const Y* y, std::size_t rows, std::size_t columns, std::size_t x_stride,
                std::size_t y_stride, const float* divisors, Y* out) {
  __shared__ float shares[kShares][kSide];
  const std::size_t column = std::size_t{blockIdx.x} * kSide + threadIdx.x;
  float sum = 0;
  if (column < columns)
    for (std::size_t r = threadIdx.y; r < rows; r += kShares)
      sum += to_float(x[r * x_stride + column]) * to_float(y[r * y_stride + column]);
  shares[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (unsigned s = 1; s < kShares; ++s) sum += shares[s][threadIdx.x];
  out[column] = from_float<Y>(divisors[column] > 0 ? sum / divisors[column] : 0.0f);
}

}  // namespace

void dora_squares(Lane& lane, const DoraShape& shape, ConstView w, ConstView a, ConstView b, View squares,
                  View /*workspace*/) {
  visit(w.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(lane, static_cast<unsigned>(shape.out), kThreads, 0, sum_squares<T>, w.as<T>(), a.as<T>(), b.as<T>(), shape,
           squares.as<float>());
  });
}

void dora_scales(Lane& lane, ConstView squares, ConstView magnitude, View norms, View scales) {
  visit(magnitude.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(lane, static_cast<unsigned>((magnitude.size + kThreads - 1) / kThreads), kThreads, 0, divide_by_norms<T>,
           squares.as<float>(), magnitude.as<T>(), magnitude.size, norms.as<float>(), scales.as<float>());
  });
}

void scale_columns(Lane& lane, std::size_t rows, std::size_t columns, std::size_t stride, ConstView x, ConstView scales,
                   ConstView bias, View out, ConstView added, float sign) {
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(lane, static_cast<unsigned>(rows), kThreads, 0, scale_row<T>, x.as<T>(),
           scales ? scales.as<float>() : nullptr, bias ? bias.as<T>() : nullptr, added ? added.as<T>() : nullptr, sign,
           columns, stride, out.as<T>());
  });
}

void column_dot(Lane& lane, std::size_t rows, std::size_t columns, std::size_t x_stride, ConstView x,
                std::size_t y_stride, ConstView y, ConstView divisors, View out, View /*workspace*/) {
  const auto issue = [&](auto of_x, auto of_y) {
    using T = decltype(of_x);
    using Y = decltype(of_y);
    launch(lane, static_cast<unsigned>((columns + kSide - 1) / kSide), dim3(kSide, kShares), 0, column_dots<T, Y>,
           x.as<T>(), y.as<Y>(), rows, columns, x_stride, y_stride, divisors.as<float>(), out.as<Y>());
  };
  visit(x.dtype, [&](auto zero) { y.dtype == x.dtype ? issue(zero, zero) : issue(zero, 0.0f); });
}

}  // namespace strata::device::cuda
