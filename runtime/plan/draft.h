#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/levels.h"
#include "runtime/plan/peers.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/request.h"

namespace strata::runtime {

using models::ElementRange;

// Bytes [offset, offset + bytes) of a buffer; 0 bytes: the whole buffer. `own`: the offset counts from the start of the
// rank's own part.
struct Slice {
  int buffer = -1;
  std::size_t offset = 0, bytes = 0;
  bool own = false;
};

// A buffer that a task writes. `starts`: the task is the first to write it; otherwise it adds to what earlier tasks
// wrote.
struct OutputBuffer {
  int buffer = -1;
  bool starts = true;

  Access access() const { return starts ? Access::write : Access::update; }
};

// A unit (part -1) or one part of it, as a call works on it. `pool`: the pool that a gather or an upload transfers.
struct UnitPart {
  int unit, part = -1;
  PoolKind pool = PoolKind::trained;
};

// A plan being written: tasks in issue order, with the buffers they use. runtime/tasks defines the uses and costs of
// each kind of task. Waits, offsets and memory are derived afterwards from the uses recorded here.
class Draft {
 public:
  explicit Draft(const PlanRequest& request);

  const PlanRequest& request;
  const models::Model& model;
  const device::StorageFormat computed;  // format of parameters and gradients, as units see them
  StepPlan plan{};
  When when = When::always;  // the condition of the tasks added next

  int units() const { return static_cast<int>(model.units.size()); }
  int last() const { return units() - 1; }
  // True if the unit belongs to this rank's pipeline stage.
  bool owns(int unit) const { return plan.own.has(unit); }
  // True if a unit of this stage shares parameters in a pool of `unit`, which another stage owns. The rank then keeps a
  // copy of that pool.
  bool copies(int unit, PoolKind pool) const;
  // The stage that owns the unit.
  int stage_of(int unit) const;
  // The other stages with units that share parameters of `unit`, in order.
  std::vector<int> copying_stages(int unit, PoolKind pool) const;
  bool single() const { return request.mesh.data() == 1; }
  bool fp32() const { return request.shape.dtype == device::DType::fp32; }
  std::size_t bytes_of(std::size_t elements) const { return stored_bytes(computed, elements); }
  std::size_t bytes_of(PoolKind pool, std::size_t elements) const {
    return stored_bytes(plan.stored_in(pool), elements);
  }
  const UnitLayout& layout(int unit) const { return plan.layout.units[static_cast<std::size_t>(unit)]; }
  const StateBuffers& state_buffers(int unit) const { return plan.state_buffers[static_cast<std::size_t>(unit)]; }
  const models::Unit& unit(int i) const { return *model.units[static_cast<std::size_t>(i)]; }
  std::size_t part_size(int unit) const { return plan.parts_of(static_cast<std::size_t>(unit)).size(); }
  std::size_t sums_size(int unit) const { return plan.sums_of(static_cast<std::size_t>(unit)).size(); }
  // How the ranks of rank 0's group are spread over nodes.
  const comm::Levels& levels(Peers peers) const;
  // The elements of `which` in its pool. The padding belongs to the last part that has elements in the pool.
  ElementRange range_of(const UnitPart& which) const;
  // "gathered block 3, part 1".
  std::string text_of(std::string_view what, const UnitPart& which) const;

  int add_buffer(std::string name, Kind kind, Tier tier, std::size_t bytes, bool persistent);
  Task& add_task(TaskKind kind, LaneId lane, int unit, int micro_batch = -1);
  // A task on these elements of the part's pool.
  Task& add_task(TaskKind kind, LaneId lane, const UnitPart& which, const ElementRange& elements, int micro_batch = -1);
  // Records that a task uses a buffer, which must exist (not -1).
  static void use(Task& task, int buffer, Role role, Access access);
  static void use(Task& task, const Slice& slice, Role role, Access access);
  static void use(Task& task, const OutputBuffer& output, Role role);
  // The same if the buffer exists; does nothing for -1.
  static void use_if_any(Task& task, int buffer, Role role, Access access);
  static void use_if_any(Task& task, const OutputBuffer& output, Role role);

  Tier tier_of(int buffer) const { return plan.buffers[static_cast<std::size_t>(buffer)].tier; }
  Slice whole(int buffer) const { return {buffer, 0, plan.buffers[static_cast<std::size_t>(buffer)].bytes}; }

 private:
  // One per Peers, created on first use, because a group may have a million ranks.
  mutable std::array<std::optional<comm::Levels>, kPeers> levels_;
};

}  // namespace strata::runtime
