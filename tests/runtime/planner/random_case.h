#pragma once
#include <rapidcheck.h>

#include <utility>
#include <vector>

#include "tests/runtime/plan_case.h"

namespace strata::runtime {

// Units that use the first tensor of an earlier one, whichever units these are.
inline void share_at_random(FakeSizes& sizes) {
  const int units = static_cast<int>(sizes.parameters.size());
  for (int unit = 1; unit < units - (sizes.tied ? 1 : 0); ++unit)
    if (*rc::gen::arbitrary<bool>())
      sizes.shares.push_back({static_cast<std::size_t>(unit), static_cast<std::size_t>(*rc::gen::inRange(0, unit)), 0});
}

// Any model and request: within a property of RapidCheck.
inline PlanCase random_case() {
  FakeSizes sizes;
  const int layers = *rc::gen::inRange(1, 7);
  for (int u = 0; u < layers + 2; ++u) {
    auto& lengths = sizes.parameters.emplace_back();
    const int tensors = *rc::gen::inRange(1, 5);
    for (int i = 0; i < tensors; ++i) lengths.push_back(*rc::gen::inRange(1, 40000));
  }
  sizes.saved = *rc::gen::inRange<std::size_t>(1, 100000);
  sizes.forward_workspace = *rc::gen::inRange<std::size_t>(0, 50000);
  sizes.backward_workspace = *rc::gen::inRange<std::size_t>(0, 50000);
  sizes.loss_workspace = *rc::gen::inRange<std::size_t>(0, 100000);
  sizes.tied = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) share_at_random(sizes);
  if (sizes.tied) {  // the table, whole or in tiles
    auto& table = sizes.parameters[0];
    table[0] = 64 * 32;
    if (*rc::gen::arbitrary<bool>()) {
      table[0] = 32 * 32;
      table.insert(table.begin() + 1, {16 * 32, 16 * 32});
    }
  }
  Recompute recompute;
  recompute.kind =
      *rc::gen::element(Recompute::Kind::none, Recompute::Kind::block, Recompute::Kind::sqrt, Recompute::Kind::list);
  if (recompute.kind == Recompute::Kind::list) recompute.blocks = {*rc::gen::inRange(0, layers)};
  PlanCase c = make_case(sizes, *rc::gen::element(1, 2, 3, 4, 7, 64), *rc::gen::inRange(1, 5), *rc::gen::inRange(0, 4),
                         *rc::gen::element(device::DType::fp32, device::DType::bf16), *rc::gen::arbitrary<bool>(),
                         *rc::gen::arbitrary<bool>(), *rc::gen::inRange(0, 5), recompute);
  const auto tier = [] { return *rc::gen::element(Tier::device, Tier::device, Tier::host, Tier::nvme); };
  Placement& placement = c.request.placement;
  placement.parameters.tier = tier();
  placement.gradients.tier = tier();
  placement.optimizer.tier = tier();
  placement.activations = tier();
  const auto divisor = [](int of) {
    std::vector<int> all;
    for (int n = 1; n <= of; ++n)
      if (of % n == 0) all.push_back(n);
    return *rc::gen::elementOf(all);
  };
  if (*rc::gen::arbitrary<bool>()) {
    placement.optimizer.group = divisor(c.request.mesh.world);
    placement.gradients.group = divisor(placement.optimizer.group);
    placement.parameters.group = divisor(placement.gradients.group);
  }
  c.request.mesh.node = divisor(c.request.mesh.world);
  c.request.update_chunk = *rc::gen::element(1, 3, 512) * kShardAlignment;
  c.request.read_ahead = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) c.request.tile_bytes = *rc::gen::inRange<std::size_t>(1, 300000);
  if (*rc::gen::arbitrary<bool>()) c.request.checkpoint_staging = 8192;
  const int group = *rc::gen::inRange(1, 9), micro_batches = c.request.mesh.data() * c.request.accumulation;
  if (!c.request.fast && micro_batches % group == 0) c.request.reduce_group = group;
  if (*rc::gen::arbitrary<bool>()) c.request.shape.device.kind = device::Kind::cuda;
  return c;
}

}  // namespace strata::runtime
