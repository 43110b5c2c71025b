#pragma once
#include "comm/communicator.h"
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// The gradient of one micro-batch that a call wrote, in the compute dtype.
struct CallGradient {
  UnitPart which;
  int micro_batch;
  ElementRange range;  // of the flat buffer in which its elements lie: the unit's, or the holder's
  bool shared;         // it is of what the unit shares with another
  int buffer;

  Role role() const { return role_of(shared); }
  static Role role_of(bool shared) { return shared ? Role::shared_gradients : Role::gradients; }
};

// Elements of the rank's part of a unit's complete gradient: its fp32 sum; or, in a step of one micro-batch on one
// rank, the rounded gradient itself, to which that of what another unit shares is added when it is read.
struct GradientSource {
  Role role;  // sum, gradients or shared_gradients
  Slice slice;
};

// All-to-all of a gradient: every rank's pieces of what this rank owns, added onto its fp32 sum in rank order.
struct ReduceGradient {
  CallGradient gradient;
  Written sum;
  bool first;  // nothing has been added to these elements of the sum

  // Adds the buffer that receives, too.
  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// A unit's sum for what it shares onto the sum of the unit that holds that.
struct Combine {
  int holder, sharer;
  int shared_sum, sum;
  // Of one rank with sums elsewhere: the elements that both buffers hold alone, and their number; empty: they hold all.
  ElementRange range = {0, 0};
  int chunk = -1;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// A rank alone whose sums live elsewhere has of a unit in tiles elements [begin, end) of the sum in the task's buffer:
// those of a tile, or a piece for the norm, whose number is task.part.
bool holds_tile(const StepPlan& plan, const Task& task);

// The elements of its unit whose gradient another unit has, too, which the task reads beside the unit's own; or none.
ElementRange also_in_shared_gradients(const Site& site, const Task& task);

// A task about `shared` elements, as the unit's flat buffer has them, is about those of the unit that holds them.
const UnitLayout& holder_of(const Site& site, const Task& task);
// What this rank owns of the elements that a unit shares with the holder.
ElementRange owned(const Site& site, const ElementRange& elements, const UnitLayout& holder);
// This rank's own part of the sum that the task is about: a sum buffer holds the rank's shard, or, if the optimizer is
// whole, everything with the shard in its place; of what is shared, what the rank owns.
device::View own_part_of_sum(const Site& site, const Task& task);

}  // namespace strata::runtime
