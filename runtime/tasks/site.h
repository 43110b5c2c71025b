#pragma once
// runtime/tasks/ defines each kind of task: a struct per kind names its operands, adds itself to a plan (uses and
// cost), and runs. gather.h, pass.h and loss.h are for forward and backward, reduce.h, local_sum.h and norm.h for
// gradients, then update.h, copy.h for copies between tiers, border.h for the host's tasks, and save.h for checkpoints.
// A Site (here) is what one rank runs them with.

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

// Communicators over the ranks that a task's elements are cut over: all, or a group (Mesh::group).
struct Communicators {
  // In the lane gather: those that hold a unit's parameters together; that update together what each of them holds.
  comm::Communicator &parameters, &updates;
  // In the lane reduce: all, in the order of their shards; those that update the same part.
  comm::Communicator &gradients, &sums;
};

// What one rank's tasks are carried out with. Each kind of task is a struct of this folder: its members name what the
// task works on, add() says of a plan being written what it uses and costs, and run() queues the work in the task's
// lane. The work goes on behind run(): the site outlives it.
struct Site {
  const StepPlan& plan;
  const models::Model& model;
  device::Optimizer optimizer;
  Coordinates rank;
  Storage& storage;
  Communicators over;

  Saver* saver = nullptr;  // for the checkpoint that is being written
  // For a step that generates: its rows, and the position of the first; otherwise no rows.
  struct Generation {
    std::size_t first = 0, rows = 0;
  } generation = {};
  IoBytes moved = {};                                        // bytes read from and written to the other tiers so far
  std::vector<std::vector<const std::byte*>> received = {};  // by task: where a reduce finds the ranks' pieces

  // What the task uses in that role; empty: nothing.
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

// Elements of a flat buffer as collectives over the ranks that it is cut over know them.
inline comm::ShardedRange range_of(const Cut& cut, const models::ElementRange& elements, device::StorageFormat format) {
  return {stored_bytes(format, cut.size()), stored_bytes(format, elements.begin), stored_bytes(format, elements.end)};
}

}  // namespace strata::runtime
