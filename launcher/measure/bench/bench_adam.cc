#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "device/ops/elementwise.h"
#include "device/ops/step/optimizer.h"
#include "launcher/measure/bench/bench.h"
#include "launcher/measure/bench/bench_lane.h"
#include "launcher/median.h"
#include "launcher/rank/cores.h"

namespace strata::launcher {
namespace {

using device::Algorithm, device::DType, device::StorageFormat, device::View;

constexpr std::array<std::string_view, 3> kAlgorithms = {"adamw", "lion", "sgd"}, kFormats = {"fp32", "bf16", "8bit"};
// Small sizes get more rounds. Even if other work runs on the machine, the best of many short passes is undisturbed.
// The number is bounded, because waking the threads dominates the smallest passes.
constexpr std::size_t rounds_of(std::size_t parameters) {
  return std::clamp<std::size_t>(400'000'000 / parameters, 9, 400);
}

struct Case {
  Algorithm algorithm;
  StorageFormat format;
  std::vector<double> ns = {};  // per parameter

  std::string name() const {
    return fmt::format("{} {}", kAlgorithms[static_cast<std::size_t>(algorithm)],
                       kFormats[static_cast<std::size_t>(format)]);
  }
  // Gradient in, master in and out, parameter out, moments in and out.
  double bytes() const {
    const double moment = static_cast<double>(stored_bytes(format, device::kMomentBlock)) / device::kMomentBlock;
    return 2 + 8 + 2 + 2 * moment * moment_count(algorithm);
  }
  double median() const { return median_of(ns); }
  double least() const { return *std::min_element(ns.begin(), ns.end()); }
};

}  // namespace

int bench_adam(const BenchOptions& options) {
  const int threads = options.threads.value_or(bind_cores(0, 1).cores);
  const std::size_t n = options.parameters / 4096 * 4096;
  std::vector<Case> cases;
  for (const Algorithm algorithm : {Algorithm::adamw, Algorithm::lion, Algorithm::sgd})
    for (const StorageFormat format : {StorageFormat::fp32, StorageFormat::bf16, StorageFormat::block8})
      cases.push_back({algorithm, format});
  BenchLane timed(threads, n * 16 + (8u << 12));
  const View gradient = timed.take(n, DType::bf16), parameter = timed.take(n, DType::bf16);
  const View master = timed.take(n, DType::fp32);
  const View first = timed.take(n, DType::fp32), second = timed.take(n, DType::fp32);
  // The values are neither zero nor all equal, so that 8-bit codes take all their branches.
  auto* gradients = gradient.as<device::bf16>();
  for (std::size_t i = 0; i < n; ++i)
    gradients[i].bits = static_cast<std::uint16_t>((i * 2654435761u >> 16 & 0x8000u) | (0x3a00u + i * 40503u % 0x200u));
  const auto elements = static_cast<double>(n);
  device::StepScalars scalars{};
  scalars.learning_rate = 1e-3f;
  scalars.gradient_factor = scalars.bias_correction1 = scalars.bias_correction2 = 1;
  const std::size_t rounds = rounds_of(n);
  std::vector<double> triads;
  for (std::size_t round = 0; round < rounds; ++round) {
    triads.push_back(12 * elements / timed.time(1, [&] { add(timed.lane(), first, second); }) / 1e9);
    for (Case& c : cases) {
      zero(timed.lane(), first);
      zero(timed.lane(), second);
      const double seconds = timed.time(1, [&] {
        ++scalars.first_micro_batch;
        update(timed.lane(), {.algorithm = c.algorithm}, &scalars,
               {.first = gradient,
                .master = master,
                .parameter = parameter,
                .format = c.format,
                .moment1 = first.data,
                .moment2 = second.data});
      });
      c.ns.push_back(seconds / elements * 1e9);
    }
  }
  const double triad = median_of(triads), most = *std::max_element(triads.begin(), triads.end());
  const double ns = cases[0].median(), rate = cases[0].bytes() / ns;
  fmt::print("{:.3f} ns per parameter, {:.1f} GB/s; triad {:.1f} GB/s, ratio {:.2f} ({}, {})\n", ns, rate, triad,
             rate / triad, counted(n, "parameter"), counted(threads, "thread"));
  fmt::print("best of {} rounds: {:.3f} ns per parameter, {:.1f} GB/s; triad {:.1f} GB/s, ratio {:.2f}\n", rounds,
             cases[0].least(), cases[0].bytes() / cases[0].least(), most, cases[0].bytes() / cases[0].least() / most);
  JsonArray rows;
  for (const Case& c : cases) {
    fmt::print("  {:<11}{:>8.3f} ns per parameter, best {:>6.3f} ({:>5.1f} GB/s, {:.2f} of adamw fp32's time)\n",
               c.name(), c.median(), c.least(), c.bytes() / c.least(), c.least() / cases[0].least());
    rows.add(JsonObject()
                 .add("update", c.name())
                 .add("ns_per_param", Decimals{c.median(), 4})
                 .add("best_ns_per_param", Decimals{c.least(), 4}));
  }
  write_json(options, JsonObject()
                          .add("ns_per_param", Decimals{ns, 4})
                          .add("gb_per_s", Decimals{rate, 3})
                          .add("triad_gb_per_s", Decimals{triad, 3})
                          .add("best_triad_gb_per_s", Decimals{most, 3})
                          .add("updates", rows));
  return 0;
}

}  // namespace strata::launcher
