#include "device/cpu/kernels/tree_sum.h"

#include "device/cpu/kernels/lanes/lanes16.h"

namespace strata::device::cpu::STRATA_ISA {

// The sums of complete subtrees that wait for their right neighbours: with 2^10 partials there are at most eleven.
static constexpr std::size_t kMostWaiting = 11;

template <typename T>
[[gnu::flatten]] static void tree_sum(const float* partials, std::size_t count, std::size_t stride,
                                      const std::byte* bias, std::byte* out, std::size_t n) {
  const auto* b = reinterpret_cast<const T*>(bias);
  auto* o = reinterpret_cast<T*>(out);
  for16(n, [&](std::size_t i, auto some) {
    F32x16 waiting[kMostWaiting];
    std::size_t top = 0;
    for (std::size_t p = 0; p < count; ++p) {
      F32x16 sum = load(partials + p * stride + i, some);
      for (std::size_t bits = p; bits & 1; bits >>= 1) sum = waiting[--top] + sum;
      waiting[top++] = sum;
    }
    F32x16 sum = waiting[0];
    if (b) sum = sum + load(b + i, some);
    store(o + i, sum, some);
  });
}

extern const TreeSumKernels tree_sum_kernels_table = {.tree_sum = STRATA_BY_DTYPE(tree_sum)};

}  // namespace strata::device::cpu::STRATA_ISA
