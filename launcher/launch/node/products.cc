#include "launcher/launch/node/products.h"

#include <chrono>

#include "base/abort.h"
#include "device/lane.h"
#include "device/memory.h"
#include "device/ops/product.h"
#include "launcher/measure/bench_stand.h"
#include "launcher/rank/cores.h"

namespace strata::launcher {

double products_per_second(double seconds) {
  constexpr std::int64_t kEdge = 1024;
  const int threads = cores_here();
  device::ProductShape shape{kEdge, kEdge, kEdge};
  shape.lda = shape.ldb = shape.ldc = kEdge;
  shape.in = shape.out = device::DType::bf16;
  const device::Product product({}, shape);
  const std::size_t elements = kEdge * kEdge, scratch = product.workspace_bytes(threads);
  Stand stand(threads, 4 * elements * 2 + scratch + 8 * 4096);
  const device::View a = stand.take(elements, shape.in), b = stand.take(elements, shape.in),
                     c = stand.take(elements, shape.out), workspace = stand.take(scratch / 4 + 1, device::DType::fp32);
  const auto start = std::chrono::steady_clock::now();
  std::chrono::duration<double> took{};
  double flop = 0;
  do {
    product.run(stand.lane(), a, b, {}, c, workspace);
    stand.lane().synchronize();
    flop += 2.0 * kEdge * kEdge * kEdge;
    took = std::chrono::steady_clock::now() - start;
  } while (took.count() < seconds);
  return flop / took.count() / 1e9;
}

}  // namespace strata::launcher
