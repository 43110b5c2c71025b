#include "device/cpu/bf16_products.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "device/cpu/isa.h"
#include "device/cpu/kernels/lanes/peak.h"

namespace strata::device::cpu {
namespace {

// The best of several runs of some microseconds: interruptions only slow a run down.
double flops_per_second(double (*kernel)(std::size_t rounds)) {
  constexpr std::size_t kRounds = 2000;
  double best = 0;
  for (int time = 0; time < 8; ++time) {
    const auto begin = std::chrono::steady_clock::now();
    const double flops = kernel(kRounds);
    best = std::max(best, flops / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

bool avx512_bf16_products() {
  static const bool faster = has_avx512_bf16() && flops_per_second(avx512_bf16::peak_kernels_table.bf16) >
                                                      flops_per_second(avx512_bf16::peak_kernels_table.fp32);
  return faster;
}

}  // namespace strata::device::cpu
