#pragma once
#include "comm/communicator.h"
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// The gradient of one micro-batch that a call wrote, in the compute dtype.
struct CallGradient {
  UnitPart which;
  int micro_batch;
  ElementRange range;  // in the flat buffer of its elements: the unit's, or the holder's
  bool shared;         // the gradient of the tensor that the unit shares with another
  int buffer;

  Role role() const { return role_of(shared); }
  static Role role_of(bool shared) { return shared ? Role::shared_gradients : Role::gradients; }
};

// The source of the rank's part of a unit's complete gradient: its fp32 sum; or, in a step of one micro-batch on one
// rank, the rounded gradient itself, to which the gradient from another unit that shares the tensor is added when it is
// read.
struct GradientSource {
  Role role;  // sum, gradients or shared_gradients
  Slice slice;
};

// All-to-all of a gradient: every rank's pieces of this rank's elements are added to its fp32 sum in rank order.
struct ReduceGradient {
  CallGradient gradient;
  Written sum;
  bool first;            // nothing has been added to these elements of the sum
  Written run_sum = {};  // training.reduce_group: the run that the call before left incomplete, or this one does

  // Also adds the buffer that receives.
  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// Adds a unit's sum for its shared tensor to the sum of the unit that holds it.
struct Combine {
  int holder, sharer;
  int shared_sum, sum;
  // Of one rank with sums elsewhere: the elements that both buffers hold alone, and their number; empty: they hold all.
  ElementRange range = {0, 0};
  int chunk = -1;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// Whether sums of the unit are on the device tile by tile: on a rank alone whose sums live in host memory, unless a
// run of micro-batches (training.reduce_group) or a frozen part goes with them. Drives take whole pages, which tiles
// are not.
bool sums_in_tiles(const StepPlan& plan, int unit);
// Whether the task's buffer holds elements [begin, end) of such a sum alone: those of a tile, or a piece for the norm,
// whose number is task.part.
bool holds_tile(const StepPlan& plan, const Task& task);

// The elements of its unit for which another unit also has a gradient, which the task reads in addition to the unit's
// own; or none.
ElementRange also_in_shared_gradients(const Site& site, const Task& task);

// A task that works on `shared` elements, in terms of the unit's flat buffer, works on those of the unit that holds
// them.
const UnitLayout& holder_of(const Site& site, const Task& task);
// What this rank owns of the elements that a unit shares with the holder.
ElementRange owned(const Site& site, const ElementRange& elements, const UnitLayout& holder);
// This rank's own part of the sum that the task is about: a sum buffer holds the rank's shard, or, if the optimizer is
// whole, everything with the shard in its place; of what is shared, what the rank owns.
device::View own_part_of_sum(const Site& site, const Task& task);

}  // namespace strata::runtime
