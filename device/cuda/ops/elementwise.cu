#include <algorithm>

#include "device/cuda/kernels/map.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/launch.h"
#include "device/numeric/row_blocks.h"
#include "device/ops/elementwise.h"

namespace strata::device::cuda {
namespace {

// The number of elements in 16 bytes of the wider of two types.
template <typename A, typename B>
inline constexpr int kWider = 16 / std::max(sizeof(A), sizeof(B));

template <typename From, typename To>
struct Cast {
  const From* from;
  To* to;

  template <int kN>
  __device__ Pack<From, kN> load(std::size_t unit) const {
    return load_pack<true, kN>(from + unit * kN, kN);
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Pack<From, kN>& x) const {
    store_pack<true>(to + unit * kN, kN, rounded<To>(widened(x)));
  }
};

// One block of threads per row.
template <typename From, typename To>
__global__ void cast_row(const From* from, std::size_t from_stride, std::size_t columns, To* to,
                         std::size_t to_stride) {
  for (std::size_t i = threadIdx.x; i < columns; i += blockDim.x)
    to[std::size_t{blockIdx.x} * to_stride + i] =
        from_float<To>(to_float(from[std::size_t{blockIdx.x} * from_stride + i]));
}

template <typename T>
struct Add {
  const T* from;
  float* to;

  template <int kN>
  struct Operands {
    Pack<T, kN> x;
    Pack<float, kN> sum;
  };
  template <int kN>
  __device__ Operands<kN> load(std::size_t unit) const {
    return {load_pack<true, kN>(from + unit * kN, kN), load_pack<true, kN>(to + unit * kN, kN)};
  }
  template <int kN>
  __device__ void store(std::size_t unit, Operands<kN> o) const {
    for (int i = 0; i < kN; ++i) o.sum.at[i] += to_float(o.x.at[i]);
    store_pack<true>(to + unit * kN, kN, o.sum);
  }
};

template <typename T>
struct Scale {
  const T* x;
  float factor;
  T* out;

  template <int kN>
  __device__ Pack<T, kN> load(std::size_t unit) const {
    return load_pack<true, kN>(x + unit * kN, kN);
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Pack<T, kN>& v) const {
    Floats<kN> scaled = widened(v);
    for (int i = 0; i < kN; ++i) scaled.at[i] *= factor;
    store_pack<true>(out + unit * kN, kN, rounded<T>(scaled));
  }
};

template <typename T>
struct CountNonfinite {
  const T* x;
  unsigned long long* count;

  template <int kN>
  __device__ Pack<T, kN> load(std::size_t unit) const {
    return load_pack<true, kN>(x + unit * kN, kN);
  }
  // One atomic addition for each unit with such elements; a step that is not skipped has none.
  template <int kN>
  __device__ void store(std::size_t, const Pack<T, kN>& v) const {
    constexpr float kInfinity = __builtin_huge_valf();
    unsigned long long found = 0;
    for (int i = 0; i < kN; ++i) found += !(fabsf(to_float(v.at[i])) < kInfinity);
    if (found != 0) atomicAdd(count, found);
  }
};

// A block of threads sums a slice of the columns over a share of a block of rows. 32 threads side by side have kN
// columns each; kShares rows of such threads take every kShares-th row, and their sums are then added in order.
constexpr int kShares = 8, kSide = 32;

template <typename T, int kN>
__global__ void __launch_bounds__(kSide* kShares)
    sum_rows(const T* x, RowBlocks blocks, std::size_t columns, std::size_t stride, float* partials) {
  __shared__ float shares[kShares][kSide * kN];
  const std::size_t column = (std::size_t{blockIdx.x} * kSide + threadIdx.x) * kN;
  const std::size_t share = blockIdx.y, block = share / kColumnShares;
  const std::size_t most = (blocks.size(block) + kColumnShares - 1) / kColumnShares;
  const std::size_t first = min(share % kColumnShares * most, blocks.size(block));
  float sum[kN] = {};
  if (column < columns) {
    const T* at = x + (blocks.begin(block) + first) * stride + column;
    const std::size_t rows = min(most, blocks.size(block) - first);
#pragma unroll 4
    for (std::size_t r = threadIdx.y; r < rows; r += kShares) {
      const auto v = load_pack<true, kN>(at + r * stride, kN);
      for (int i = 0; i < kN; ++i) sum[i] += to_float(v.at[i]);
    }
  }
  for (int i = 0; i < kN; ++i) shares[threadIdx.y][threadIdx.x * kN + i] = sum[i];
  __syncthreads();
  for (unsigned c = threadIdx.y * kSide + threadIdx.x; c < kSide * kN; c += kSide * kShares) {
    const std::size_t to = std::size_t{blockIdx.x} * (kSide * kN) + c;
    if (to >= columns) break;
    float total = shares[0][c];
    for (int s = 1; s < kShares; ++s) total += shares[s][c];
    partials[share * columns + to] = total;
  }
}

// A column's partial sums: each of kShares threads adds every kShares-th one, and their sums are added in order.
template <typename T>
__global__ void __launch_bounds__(kSide* kShares)
    add_partials(const float* partials, std::size_t count, std::size_t columns, T* out) {
  __shared__ float shares[kShares][kSide];
  const std::size_t column = std::size_t{blockIdx.x} * kSide + threadIdx.x;
  float sum = 0;
  if (column < columns)
#pragma unroll 16
    for (std::size_t p = threadIdx.y; p < count; p += kShares) sum += partials[p * columns + column];
  shares[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int s = 1; s < kShares; ++s) sum += shares[s][threadIdx.x];
  out[column] = from_float<T>(sum);
}

template <typename T, int kN>
void launch_sum_rows(Lane& lane, const T* x, const RowBlocks& blocks, std::size_t columns, std::size_t stride,
                     float* partials) {
  const auto slices = static_cast<unsigned>((columns + kSide * kN - 1) / (kSide * kN));
  launch(lane, dim3(slices, static_cast<unsigned>(blocks.count * kColumnShares)), dim3(kSide, kShares), 0,
         sum_rows<T, kN>, x, blocks, columns, stride, partials);
}

}  // namespace

void zero(Lane& lane, View x) {
  if (x.size > 0) fill_zero(lane, x.data, x.bytes());
}

void cast(Lane& lane, ConstView from, View to) {
  if (from.dtype == to.dtype) {
    if (from.size > 0) copy(lane, to.data, from.data, from.bytes());
    return;
  }
  visit(from.dtype, [&](auto a) {
    visit(to.dtype, [&](auto b) {
      using From = decltype(a);
      using To = decltype(b);
      map_elements<kWider<From, To>, 4>(lane, Cast<From, To>{from.as<From>(), to.as<To>()}, to.size,
                                        aligned(from.data, 16) && aligned(to.data, 16));
    });
  });
}

void cast_columns(Lane& lane, std::size_t rows, std::size_t columns, std::size_t from_stride, ConstView from,
                  std::size_t to_stride, View to) {
  visit(from.dtype, [&](auto a) {
    visit(to.dtype, [&](auto b) {
      using From = decltype(a);
      using To = decltype(b);
      launch(lane, static_cast<unsigned>(rows), kMapThreads, 0, cast_row<From, To>, from.as<From>(), from_stride,
             columns, to.as<To>(), to_stride);
    });
  });
}

void add(Lane& lane, ConstView from, View to) {
  visit(from.dtype, [&](auto zero) {
    using T = decltype(zero);
    map_elements<4, 2>(lane, Add<T>{from.as<T>(), to.as<float>()}, to.size,
                       aligned(from.data, 16) && aligned(to.data, 16));
  });
}

void scale(Lane& lane, ConstView x, float factor, View out) {
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    map_elements<kWider<T, T>, 4>(lane, Scale<T>{x.as<T>(), factor, out.as<T>()}, x.size,
                                  aligned(x.data, 16) && aligned(out.data, 16));
  });
}

void count_nonfinite(Lane& lane, ConstView x, std::uint64_t* count) {
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const CountNonfinite<T> f{x.as<T>(), reinterpret_cast<unsigned long long*>(count)};
    map_elements<kWider<T, T>, 4>(lane, f, x.size, aligned(x.data, 16));
  });
}

void column_sum(Lane& lane, std::size_t rows, std::size_t columns, std::size_t stride, ConstView x, View out,
                View workspace) {
  if (columns == 0) return;
  const RowBlocks blocks(rows);
  auto* partials = reinterpret_cast<float*>(workspace.data);
  visit(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kN = kWider<T, T>;
    if (aligned(x.data, stride * sizeof(T)) && columns % kN == 0)
      launch_sum_rows<T, kN>(lane, x.as<T>(), blocks, columns, stride, partials);
    else
      launch_sum_rows<T, 1>(lane, x.as<T>(), blocks, columns, stride, partials);
  });
  visit(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(lane, static_cast<unsigned>((columns + kSide - 1) / kSide), dim3(kSide, kShares), 0, add_partials<T>,
           partials, blocks.count * kColumnShares, columns, out.as<T>());
  });
}

}  // namespace strata::device::cuda
