#include "device/cuda/kernels/map.cuh"
#include "device/cuda/kernels/pack.cuh"
#include "device/cuda/launch.h"
#include "device/ops/tree_sum.h"

namespace strata::device::cuda {
namespace {

constexpr std::size_t kMostInRegisters = 8;
constexpr int kLevels = 11;

// The sum of kCount partials of kN elements.
template <std::size_t kCount, int kN>
__device__ Pack<float, kN> subtree(const float* at, std::size_t stride) {
  if constexpr (kCount == 1) {
    return load_pack<true, kN>(at, kN);
  } else {
    const auto left = subtree<kCount / 2, kN>(at, stride);
    const auto right = subtree<kCount / 2, kN>(at + kCount / 2 * stride, stride);
    Pack<float, kN> sum;
    for (int i = 0; i < kN; ++i) sum.at[i] = left.at[i] + right.at[i];
    return sum;
  }
}

// kCount partials are added in registers; with more, each thread goes over groups of kCount as a binary counter does:
// level i waits while bit i of the number of groups is set.
template <typename T, std::size_t kCount>
struct TreeSum {
  const float* partials;
  std::size_t groups, stride;  // stride: elements from one partial to the next
  const T* bias;
  unsigned columns;  // of the bias
  T* out;

  template <int kN>
  __device__ Pack<float, kN> load(std::size_t unit) const {
    const float* const at = partials + unit * kN;
    Pack<float, kN> sum = subtree<kCount, kN>(at, stride);
    if constexpr (kCount == kMostInRegisters) {
      // The loop over levels is unrolled and selects instead of branching: with an index that is not known at compile
      // time, or a break, `waiting` would lie in local memory.
      Pack<float, kN> waiting[kLevels] = {};
      waiting[0] = sum;
      for (std::size_t g = 1; g < groups; ++g) {
        sum = subtree<kCount, kN>(at + g * kCount * stride, stride);
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

template <typename T, std::size_t kCount>
void sum_by(Lane& lane, std::size_t count, ConstView partials, ConstView bias, View out) {
  const TreeSum<T, kCount> f{partials.as<float>(),
                             count / kCount,
                             out.size,
                             bias ? bias.as<T>() : nullptr,
                             bias ? static_cast<unsigned>(bias.size) : 1u,
                             out.as<T>()};
  const bool packed = out.size % 4 == 0 && (!bias || bias.size % 4 == 0) && aligned(partials.data, 16) &&
                      aligned(out.data, 16) && (!bias || aligned(bias.data, 16));
  map_elements<4, 1>(lane, f, out.size, packed);
}

}  // namespace

void tree_sum(Lane& lane, std::size_t count, ConstView partials, ConstView bias, View out) {
  visit(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (count) {
      case 1:
        return sum_by<T, 1>(lane, count, partials, bias, out);
      case 2:
        return sum_by<T, 2>(lane, count, partials, bias, out);
      case 4:
        return sum_by<T, 4>(lane, count, partials, bias, out);
      default:
        return sum_by<T, kMostInRegisters>(lane, count, partials, bias, out);
    }
  });
}

}  // namespace strata::device::cuda
