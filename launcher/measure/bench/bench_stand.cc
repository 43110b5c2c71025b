#include "launcher/measure/bench/bench_stand.h"

#include "launcher/overwrite.h"
#include "runtime/run/reports/report.h"

namespace strata::launcher {

double triad_gb_per_s(int threads) {
  constexpr std::size_t kElements = 64u << 20;
  Stand stand(threads, 2 * kElements * sizeof(float));
  const device::View x = stand.take(kElements, device::DType::fp32), y = stand.take(kElements, device::DType::fp32);
  return 12.0 * kElements / stand.time(5, [&] { add(stand.lane(), x, y); }) / 1e9;
}

void require_own_json(const BenchOptions& options) {
  if (options.json) require_own({"--json", *options.json}, Content::bench, options.force);
}

void write_json(const BenchOptions& options, const std::string& text) {
  if (!options.json) return;
  runtime::ReportFile file(*options.json, "--json");
  file.write(text + "\n");
  file.close();
}

}  // namespace strata::launcher
