#pragma once
// runtime/tasks/ defines each kind of task: a struct per kind names its operands, adds itself to a plan (uses and
// cost), and runs. pass.h and loss.h are for forward and backward, collectives/ for the exchanges between ranks, norm.h
// for gradients, then update.h, copy.h for copies between tiers, and step_boundary.h for the host's tasks and
// checkpoints. TaskContext is what all tasks of a rank work with.

#include <cstddef>
#include <vector>

#include "comm/communicator.h"
#include "device/lane.h"
#include "device/ops/step/optimizer.h"
#include "device/view.h"
#include "models/model.h"
#include "runtime/memory/storage.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

class Saver;

// The communicators of tasks, one per kind of exchange; see Peers for the groups.
struct Communicators {
  comm::Communicator &parameters, &updates;            // communicators of lane gather
  comm::Communicator &gradients, &sums, &node, &all;   // communicators of lane reduce
  comm::Communicator& tensor;                          // that of lane exchange; unused if no ranks share a layer
  comm::Communicator &stage_forward, &stage_backward;  // those of the lanes with these names; unused with one stage
};

// The objects that a rank's tasks use. Each kind of task is a struct of this folder: its members name the operands,
// add() records the task's uses and cost in a plan being written, and run() queues the work in the task's lane. That
// work may run after run() has returned, so the context must outlive it.
struct TaskContext {
  const StepPlan& plan;
  const models::Model& model;
  device::Optimizer optimizer;
  Coordinates rank;
  Storage& storage;
  Communicators communicators;

  Saver* saver = nullptr;  // the saver of the checkpoint that is being written
  // For a step that generates: its rows, and the position of the first; otherwise no rows.
  struct Generation {
    std::size_t first = 0, rows = 0;
  } generation = {};
  IoBytes moved = {};                                        // bytes read from and written to other tiers so far
  std::vector<std::vector<const std::byte*>> received = {};  // per task: the ranks' pieces that a reduce adds

  // The task's operand in that role; empty: none.
  device::View view(const Task& task, Role role, device::DType dtype) const { return storage.view(task, role, dtype); }
  // The same, for parameters and gradients in the compute dtype.
  device::View view(const Task& task, Role role) const { return storage.view(task, role, plan.dtype); }
  // A whole buffer as T, at the address that its tier's lanes use.
  template <typename T>
  T* at(int buffer) const {
    return reinterpret_cast<T*>(storage.view(buffer, device::DType::fp32).data);
  }
  const models::Unit& unit(const Task& task) const { return *model.units[static_cast<std::size_t>(task.unit)]; }
  const UnitLayout& layout(int unit) const { return plan.layout.units[static_cast<std::size_t>(unit)]; }
  const UnitLayout& layout(const Task& task) const { return layout(task.unit); }
};

// The elements in the form that collectives over the cut's ranks take: in bytes of `format`.
inline comm::ShardedRange range_of(const Cut& cut, const models::ElementRange& elements, device::StorageFormat format) {
  return {stored_bytes(format, cut.size()), stored_bytes(format, elements.begin), stored_bytes(format, elements.end)};
}

}  // namespace strata::runtime
