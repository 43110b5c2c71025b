#include "runtime/tasks/copy.h"

#include <array>
#include <span>

#include "base/error.h"
#include "base/index.h"
#include "device/cpu/lane_impl.h"
#include "device/ops/elementwise.h"
#include "offload/swap.h"

namespace strata::runtime {
namespace {

struct Route {
  TaskKind kind;
  LaneId lane;
};
Route route_between(Tier source, Tier target) {
  if (source == Tier::nvme) return {TaskKind::read, LaneId::disk_read};
  if (target == Tier::nvme) return {TaskKind::write, LaneId::disk_write};
  if (target == Tier::device) return {TaskKind::upload, LaneId::upload};
  return {TaskKind::download, LaneId::download};
}

// Adds `bytes` to the step's totals and to the task's cost.
void count(TaskKind kind, std::size_t bytes, IoBytes& io, Cost& cost) {
  const auto amount = static_cast<double>(bytes);
  switch (kind) {
    case TaskKind::read:
      io.read[index(Tier::nvme)] += bytes;
      cost.read_bytes += amount;
      break;
    case TaskKind::write:
      io.written[index(Tier::nvme)] += bytes;
      cost.written_bytes += amount;
      break;
    default:
      (kind == TaskKind::upload ? io.read : io.written)[index(Tier::host)] += bytes;
      cost.host_bytes += amount;
  }
}

// The ranges of one transfer, in a form that a closure can hold.
struct Ranges {
  std::array<offload::Range, offload::kMaxRanges> all;
  std::size_t count = 0;

  void add(const offload::Range& range) {
    STRATA_CHECK_LT(count, all.size());
    all[count++] = range;
  }
  std::span<const offload::Range> span() const { return {all.data(), count}; }
};

}  // namespace

void Copy::add(Draft& draft) const {
  const auto [kind, lane] = route_between(draft.tier_of(pairs[0].from.buffer), draft.tier_of(pairs[0].to.buffer));
  Task& task = draft.add_task(kind, lane, unit);
  task.boundary = boundary;
  for (const auto& [from, to] : pairs) {
    STRATA_CHECK_EQ(from.bytes, to.bytes);
    Draft::use(task, from, Role::source, Access::read);
    Draft::use(task, to, Role::target, Access::write);
    task.uses.back().copies = static_cast<int>(task.uses.size()) - 2;
    count(kind, from.bytes, draft.plan.io_bytes, task.cost);
  }
}

void Copy::run(TaskContext& context, const Task& task, device::Lane& lane) {
  const bool reads = task.kind == TaskKind::read, writes = task.kind == TaskKind::write;
  Ranges ranges;
  Cost counted;
  for (const Use& target : task.uses) {
    if (target.copies < 0) continue;
    const Use& source = task.uses[static_cast<std::size_t>(target.copies)];
    count(task.kind, source.bytes, context.moved, counted);
    if (!reads && !writes) {
      cast(lane, context.storage.view(task, source, device::DType::fp32),
           context.storage.view(task, target, device::DType::fp32));
      continue;
    }
    const Use &there = reads ? source : target, &here = reads ? target : source;  // on NVMe, in memory
    ranges.add({context.storage.place_of(task, there), context.storage.view(task, here, device::DType::fp32).data,
                source.bytes});
  }
  // The lane's next work starts when the whole transfer has ended.
  offload::Swap* const swap = context.storage.swap();
  if (reads) device::cpu::submit(lane, [swap, ranges](device::cpu::Team&) { swap->read(ranges.span()); });
  if (writes) device::cpu::submit(lane, [swap, ranges](device::cpu::Team&) { swap->write(ranges.span()); });
}

}  // namespace strata::runtime
