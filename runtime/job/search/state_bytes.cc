#include "runtime/job/search/state_bytes.h"

#include <array>
#include <cstddef>

namespace strata::runtime {

bool state_may_fit(const Recipe& recipe, const Layout& layout, const Capacity& capacity) {
  const Placement placement = placement_of(recipe.zero, layout.mesh.data_per_node());
  const auto elements = [&](const StatePlacement& state, PoolKind pool) {
    std::size_t sum = 0;
    for (const UnitLayout& unit : layout.units)
      sum += unit.pool(pool).shards.in_pieces(state.pieces(layout.mesh)).size();
    return sum;
  };
  const device::DType dtype = recipe.training.precision;
  const std::size_t parameter = device::size_of(dtype), part = elements(placement.optimizer, PoolKind::trained);
  const std::size_t sums = elements(placement.sums(), PoolKind::trained);
  // The sums of all units exist at once when their norm is computed.
  const bool has_sums = layout.mesh.data() > 1 || recipe.accumulation_steps(layout.mesh.world) > 1;
  const std::size_t master = dtype == device::DType::fp32 ? 0 : sizeof(float);  // fp32 parameters are their own master
                                                                                // copy
  const std::size_t moment = recipe.optimizer.moment_format() == device::StorageFormat::block8 ? 1 : 2;  // lower bounds
  const auto moments = static_cast<std::size_t>(device::moment_count(recipe.optimizer.algorithm()));

  std::array<std::size_t, kTiers> bytes{};
  const auto add = [&](Tier tier, std::size_t size) { bytes[static_cast<std::size_t>(tier)] += size; };
  for (const PoolKind pool : kPools) {
    const device::StorageFormat format = pool == PoolKind::quantised ? layout.quantised : format_of(dtype);
    add(placement.parameters.tier, stored_bytes(format, elements(placement.parameters, pool)));
  }
  add(placement.gradients.tier, sums * (has_sums ? sizeof(float) : parameter));
  add(placement.optimizer.tier, part * (master + moments * moment));
  // The units of all stages of a pipeline: one of the stages has at least an equal part of them.
  const auto stages = static_cast<std::size_t>(layout.mesh.stages);
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    if (bytes[tier] / stages > capacity.tier[tier]) return false;
  return (bytes[0] + bytes[1]) / stages <= capacity.together;
}

bool is_worth_planning(const Recipe& recipe, const Layout& layout, const Capacity& capacity) {
  constexpr std::size_t kMaxUpdated = std::size_t{1} << 36;
  std::size_t elements = 0;
  for (const UnitLayout& unit : layout.units) elements += unit.padded();
  elements /= static_cast<std::size_t>(layout.mesh.stages);
  const bool whole = !placement_of(recipe.zero).optimizer.sharded() && layout.mesh.data() > 1;
  if (whole && recipe.zero.optimizer != Tier::device && elements > kMaxUpdated) return false;
  return state_may_fit(recipe, layout, capacity);
}

}  // namespace strata::runtime
