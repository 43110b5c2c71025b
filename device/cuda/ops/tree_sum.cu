#include "device/cuda/kernels/map.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/launch.h"
#include "device/ops/elementwise.h"

namespace strata::device::cuda {
namespace {

constexpr std::size_t kMaxInRegisters = 8;
constexpr int kLevels = 11;

// Partials at one stride, and partials in several places.
struct Stack {
  const float* first;
  std::size_t stride;  // elements from one partial to the next

  __device__ const float* partial(std::size_t p) const { return first + p * stride; }
};
struct Pieces {
  const float* at[kMaxPieces];

  __device__ const float* partial(std::size_t p) const { return at[p]; }
};

// The sum of kCount partials, starting at `first`, over kN elements, starting at `begin`.
template <std::size_t kCount, int kN, typename Source>
__device__ Pack<float, kN> subtree(const Source& source, std::size_t first, std::size_t begin) {
  if constexpr (kCount == 1) {
    return load_pack<true, kN>(source.partial(first) + begin, kN);
  } else {
    const auto left = subtree<kCount / 2, kN>(source, first, begin);
    const auto right = subtree<kCount / 2, kN>(source, first + kCount / 2, begin);
    Pack<float, kN> sum;
    for (int i = 0; i < kN; ++i) sum.at[i] = left.at[i] + right.at[i];
    return sum;
  }
}

// kCount partials are added in registers; with more, each thread goes over groups of kCount as a binary counter does:
// level i waits while bit i of the number of groups is set.
template <typename T, std::size_t kCount, typename Source>
struct TreeSum {
  Source source;
  std::size_t groups;
  const T* bias;
  unsigned columns;  // the size of the bias
  T* out;

  template <int kN>
  __device__ Pack<float, kN> load(std::size_t unit) const {
    const std::size_t begin = unit * kN;
    Pack<float, kN> sum = subtree<kCount, kN>(source, 0, begin);
    if constexpr (kCount == kMaxInRegisters) {
      // The loop over levels is unrolled and selects instead of branching: with an index that is not known at compile
      // time, or a break, `waiting` would be in local memory.
      Pack<float, kN> waiting[kLevels] = {};
      waiting[0] = sum;
      for (std::size_t g = 1; g < groups; ++g) {
        sum = subtree<kCount, kN>(source, g * kCount, begin);
        bool carries = true;
#pragma unroll
        for (int level = 0; level < kLevels; ++level) {
          const bool adds = carries && (g >> level & 1) != 0, stays = carries && !adds;
          for (int i = 0; i < kN; ++i) {
            const float left = waiting[level].at[i];
            waiting[level].at[i] = stays ? sum.at[i] : left;
            sum.at[i] = adds ? left + sum.at[i] : sum.at[i];
          }
          carries = adds;
        }
      }
    }
    return sum;
  }
  template <int kN>
  __device__ void store(std::size_t unit, const Pack<float, kN>& sum) const {
    Floats<kN> x = widened(sum);
    if (bias) {
      // A row has a whole number of units.
      const std::size_t column = std::size_t{row_unit(unit, columns / kN).at} * kN;
      const auto b = widened(load_pack<true, kN>(bias + column, kN));
      for (int i = 0; i < kN; ++i) x.at[i] += b.at[i];
    }
    store_pack<true>(out + unit * kN, kN, rounded<T>(x));
  }
};

template <typename T, std::size_t kCount, typename Source>
void sum_by(Lane& lane, const Source& source, std::size_t count, bool aligned_source, ConstView bias, View out) {
  const TreeSum<T, kCount, Source> f{source, count / kCount, bias ? bias.as<T>() : nullptr,
                                     bias ? static_cast<unsigned>(bias.size) : 1u, out.as<T>()};
  const bool packed = out.size % 4 == 0 && (!bias || bias.size % 4 == 0) && aligned_source && aligned(out.data, 16) &&
                      (!bias || aligned(bias.data, 16));
  map_elements<4, 1>(lane, f, out.size, packed);
}

template <typename Source>
void sum_of(Lane& lane, const Source& source, std::size_t count, bool aligned_source, ConstView bias, View out) {
  visit(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (count) {
      case 1:
        return sum_by<T, 1>(lane, source, count, aligned_source, bias, out);
      case 2:
        return sum_by<T, 2>(lane, source, count, aligned_source, bias, out);
      case 4:
        return sum_by<T, 4>(lane, source, count, aligned_source, bias, out);
      default:
        return sum_by<T, kMaxInRegisters>(lane, source, count, aligned_source, bias, out);
    }
  });
}

}  // namespace

void tree_sum(Lane& lane, std::size_t count, ConstView partials, ConstView bias, View out) {
  sum_of(lane, Stack{partials.as<float>(), out.size}, count, aligned(partials.data, 16), bias, out);
}

void tree_sum_of_pieces(Lane& lane, std::span<const std::byte* const> partials, ConstView bias, View out) {
  Pieces pieces{};
  bool all_aligned = true;
  for (std::size_t p = 0; p < partials.size(); ++p) {
    pieces.at[p] = reinterpret_cast<const float*>(partials[p]);
    all_aligned = all_aligned && aligned(partials[p], 16);
  }
  sum_of(lane, pieces, partials.size(), all_aligned, bias, out);
}

}  // namespace strata::device::cuda
