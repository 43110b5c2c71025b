#include "launcher/launch/node/products.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "base/abort.h"
#include "device/gpu.h"
#include "device/lane.h"
#include "device/memory.h"
#include "device/ops/products/product.h"
#include "launcher/measure/bench/bench_stand.h"
#include "launcher/rank/cores.h"

namespace strata::launcher {

namespace {

double products_on(device::Device device, std::int64_t edge, int threads, double seconds) {
  device::ProductShape shape{edge, edge, edge};
  shape.lda = shape.ldb = shape.ldc = edge;
  shape.in = shape.out = device::DType::bf16;
  const device::Product product(device, shape);
  const std::size_t elements = edge * edge, scratch = product.workspace_bytes(threads);
  Stand stand(threads, 4 * elements * 2 + scratch + 8 * 4096, device);
  const device::View a = stand.take(elements, shape.in), b = stand.take(elements, shape.in),
                     c = stand.take(elements, shape.out), workspace = stand.take(scratch / 4 + 1, device::DType::fp32);
  const auto start = std::chrono::steady_clock::now();
  std::chrono::duration<double> took{};
  double flop = 0;
  do {
    product.run(stand.lane(), a, b, {}, c, workspace);
    stand.lane().synchronize();
    flop += 2.0 * edge * edge * edge;
    took = std::chrono::steady_clock::now() - start;
  } while (took.count() < seconds);
  return flop / took.count() / 1e9;
}

}  // namespace

double products_per_second(double seconds, bool on_gpus) {
  std::vector<device::Device> gpus;
  if (on_gpus)
    for (const device::Gpu& gpu : device::find_gpus().gpus)
      if (gpu.problem.empty()) gpus.push_back(gpu.device);
  if (gpus.empty()) return products_on({}, 1024, cores_here(), seconds);
  double slowest = std::numeric_limits<double>::max();
  for (const device::Device gpu : gpus)
    slowest = std::min(slowest, products_on(gpu, 8192, 1, seconds / static_cast<double>(gpus.size())));
  return slowest;
}

}  // namespace strata::launcher
