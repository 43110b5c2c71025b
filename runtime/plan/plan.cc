#include "runtime/plan/plan.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <concepts>
#include <numeric>

namespace strata::runtime {

std::uint64_t IoBytes::total() const {
  return std::accumulate(read.begin(), read.end(), std::uint64_t{0}) +
         std::accumulate(written.begin(), written.end(), std::uint64_t{0});
}

IoBytes& IoBytes::operator+=(const IoBytes& other) {
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    read[tier] += other.read[tier];
    written[tier] += other.written[tier];
  }
  return *this;
}

IoBytes IoBytes::per_step(std::int64_t steps) const {
  IoBytes mean = *this;
  for (auto* bytes : {&mean.read, &mean.written})
    for (std::uint64_t& n : *bytes) n /= static_cast<std::uint64_t>(std::max<std::int64_t>(steps, 1));
  return mean;
}

int Task::buffer(Role role) const {
  for (const Use& use : uses)
    if (use.role == role) return use.buffer;
  return -1;
}

std::string name_of(const Task& task, const models::Model& model) {
  std::string name{traits_of(task.kind).name};
  if (task.unit >= 0) name += " " + model.units[static_cast<std::size_t>(task.unit)]->name();
  if (task.shared) name += " (tied)";
  if (task.kind == TaskKind::gather && task.pool == PoolKind::frozen) name += " (frozen)";
  if (task.kind == TaskKind::gather && task.pool == PoolKind::quantised) name += " (quantised)";
  if (task.step) {
    constexpr std::array<std::string_view, 4> kSteps = {"norm", "statistics", "gradients", "norm's gradients"};
    name += fmt::format(", {}", kSteps[static_cast<std::size_t>(*task.step)]);
  }
  if (task.part >= 0) name += fmt::format(", part {}", task.part);
  if (task.stretch >= 0)
    name += fmt::format(", {}{}", task.lane == LaneId::exchange ? task.backward ? "backward " : "forward " : "stretch ",
                        task.stretch);
  if (task.micro_batch >= 0) name += fmt::format(", micro-batch {}", task.micro_batch);
  return name;
}

namespace {

// One hash of integers and enumerators of any type, in order.
class Hash {
 public:
  template <typename T>
  requires std::integral<T> || std::is_enum_v<T> Hash& operator<<(T value) {
    numbers_.push_back(static_cast<std::uint64_t>(value));
    return *this;
  }
  std::uint64_t value() const { return XXH3_64bits(numbers_.data(), numbers_.size() * sizeof(std::uint64_t)); }

 private:
  std::vector<std::uint64_t> numbers_;
};

void add(Hash& hash, const Layout& layout) {
  hash << layout.mesh.world << layout.mesh.node << layout.units.size() << layout.quantised << layout.quantised_as;
  if (layout.mesh.data() < layout.mesh.world) hash << layout.mesh.tensor << layout.mesh.stages;
  for (const UnitLayout& unit : layout.units) {
    for (const PoolKind kind : kPools) {
      const Pool& pool = unit.pool(kind);
      hash << pool.size << pool.padded() << pool.shard() << pool.ranges.size();
    }
    if (unit.shared) hash << unit.shared->unit << unit.shared->elements.begin << unit.shared->elements.end;
    for (const PoolKind kind : kPools)
      for (const TensorRange& range : unit.pool(kind).ranges)
        // The last of the ranks that share each layer may have fewer words of a vocabulary, but reserve the same
        // memory.
        hash << range.begin << std::max(range.end, range.reserved_end) << range.parameter << range.decay
             << range.moments;
  }
}

void add(Hash& hash, const Task& task) {
  hash << task.kind << task.lane << task.unit << task.micro_batch << task.shared << task.pool << task.first
       << task.when;
  if (task.stretch >= 0) hash << task.stretch << task.backward << task.overlaps_exchange;
  hash << task.part << (task.step ? static_cast<int>(*task.step) : -1) << task.begin << task.end << task.frozen_begin
       << task.quantised_begin << task.at_once;
  hash << task.uses.size();
  for (const Use& use : task.uses) hash << use.buffer << use.role << use.access << use.offset << use.bytes << use.own;
  hash << task.waits.size();
  for (const int wait : task.waits) hash << wait;
}

}  // namespace

std::size_t StepPlan::moment_bytes(std::size_t unit, std::size_t first, std::size_t last) const {
  const device::StorageFormat format = layout.units[unit].moments;
  if (format != device::StorageFormat::block8)
    return device::stored_bytes(format, last - first);  // the same on every rank
  std::size_t most = 0;
  const Cut parts = parts_of(unit);
  for (int part = 0; part < parts.pieces; ++part) {
    const std::size_t begin = parts.piece(part).begin;
    most = std::max(most, layout.units[unit].moment_bytes(begin + first, begin + last));
  }
  return most;
}

std::uint64_t hash_of(const StepPlan& plan) {
  Hash hash;
  hash << plan.ranks() << plan.accumulation << plan.tokens << plan.rows << plan.dtype << plan.fast << plan.vertical
       << plan.reduce_group << plan.forward_only << plan.cyclic << plan.device.kind;
  const Placement& placement = plan.placement;
  for (const StatePlacement state : {placement.parameters, placement.gradients, placement.optimizer})
    hash << state.over << state.group << state.tier;
  hash << placement.activations;
  add(hash, plan.layout);
  hash << plan.buffers.size();
  for (const Buffer& b : plan.buffers) hash << b.kind << b.tier << b.bytes << b.persistent << b.offset;
  hash << plan.tasks.size();
  for (const Task& task : plan.tasks) add(hash, task);
  for (const TierMemory& memory : plan.memory) hash << memory.peak;
  return hash.value();
}

}  // namespace strata::runtime
