#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

// The sums of complete subtrees that wait for their right neighbours: with 2^10 partials there are at most eleven.
static constexpr std::size_t kMaxWaiting = 11;

// `partial(p)` is where the first element of partial p is.
template <typename T, typename Partial>
static inline void add_tree(const Partial& partial, std::size_t count, const std::byte* bias, std::byte* out,
                            std::size_t n) {
  const auto* b = reinterpret_cast<const T*>(bias);
  auto* o = reinterpret_cast<T*>(out);
  for16(n, [&](std::size_t i, auto some) {
    F32x16 waiting[kMaxWaiting];
    std::size_t top = 0;
    for (std::size_t p = 0; p < count; ++p) {
      F32x16 sum = load(partial(p) + i, some);
      for (std::size_t bits = p; bits & 1; bits >>= 1) sum = waiting[--top] + sum;
      waiting[top++] = sum;
    }
    F32x16 sum = waiting[0];
    if (b) sum = sum + load(b + i, some);
    store(o + i, sum, some);
  });
}

template <typename T>
[[gnu::flatten]] static void tree_sum(const float* partials, std::size_t count, std::size_t stride,
                                      const std::byte* bias, std::byte* out, std::size_t n) {
  add_tree<T>([=](std::size_t p) { return partials + p * stride; }, count, bias, out, n);
}

template <typename T>
[[gnu::flatten]] static void tree_sum_of_pieces(const std::byte* const* partials, std::size_t count, std::size_t begin,
                                                const std::byte* bias, std::byte* out, std::size_t n) {
  add_tree<T>([=](std::size_t p) { return reinterpret_cast<const float*>(partials[p]) + begin; }, count, bias, out, n);
}

extern const TreeSumKernels tree_sum_kernels_table = {.tree_sum = STRATA_BY_DTYPE(tree_sum),
                                                      .tree_sum_of_pieces = STRATA_BY_DTYPE(tree_sum_of_pieces)};

}  // namespace strata::device::cpu::STRATA_ISA
