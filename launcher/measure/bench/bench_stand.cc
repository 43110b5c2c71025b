#include "launcher/measure/bench/bench_stand.h"

namespace strata::launcher {

double triad_gb_per_s(int threads) {
  constexpr std::size_t kElements = 64u << 20;
  Stand stand(threads, 2 * kElements * sizeof(float));
  const device::View x = stand.take(kElements, device::DType::fp32), y = stand.take(kElements, device::DType::fp32);
  return 12.0 * kElements / stand.time(5, [&] { add(stand.lane(), x, y); }) / 1e9;
}

}  // namespace strata::launcher
