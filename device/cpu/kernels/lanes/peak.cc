#include "device/cpu/kernels/lanes/peak.h"

#include "device/cpu/kernels/lanes/lanes16.h"

namespace strata::device::cpu::STRATA_ISA {

// The number of independent sums: enough to hide an addition's latency, few enough to leave registers for factors.
#if defined(__AVX512F__)
static constexpr int kSums = 12;
#else
static constexpr int kSums = 6;
#endif

// Makes the compiler assume that the factors change in every round.
STRATA_LANES void any_value(F32x16& x) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(x.v));
#else
  asm volatile("" : "+x"(x.lo), "+x"(x.hi));
#endif
}

template <typename Add>
STRATA_LANES void repeat(std::size_t rounds, Add&& add) {
  F32x16 sums[kSums], factor = zeros();
  for (F32x16& s : sums) s = zeros();
  for (std::size_t round = 0; round < rounds; ++round) {
    any_value(factor);
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = add(factor, sums[i]);
  }
  for (F32x16& s : sums) any_value(s);
}

static double fp32(std::size_t rounds) {
  repeat(rounds, [](F32x16 factor, F32x16 sum) { return fma(factor, factor, sum); });
  return static_cast<double>(rounds * kSums * kLanes * 2);
}

#if defined(__AVX512BF16__)
static double bf16_pairs(std::size_t rounds) {
  repeat(rounds, [](F32x16 factor, F32x16 sum) {
    const auto pairs = reinterpret_cast<__m512bh>(factor.v);
    return F32x16{_mm512_dpbf16_ps(sum.v, pairs, pairs)};
  });
  return static_cast<double>(rounds * kSums * kLanes * 4);
}
extern const PeakKernels peak_kernels_table = {fp32, bf16_pairs};
#else
extern const PeakKernels peak_kernels_table = {fp32, nullptr};
#endif

}  // namespace strata::device::cpu::STRATA_ISA
