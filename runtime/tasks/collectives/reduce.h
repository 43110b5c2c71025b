#pragma once
// runtime/tasks/collectives/ holds the tasks that ranks do together: gradients reduced (this header), parameters
// gathered (gather.h), and activations exchanged by ranks that share a layer (activations.h).
#include "comm/communicator.h"
#include "runtime/plan/draft.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// The gradient that a call wrote for one micro-batch, in the compute dtype.
struct CallGradient {
  UnitPart which;
  int micro_batch;
  ElementRange range;  // elements in the flat buffer of the unit, or of the holder if `shared`
  bool shared;         // true if the unit shares the tensor with another (the holder)
  int buffer;

  Role role() const { return role_of(shared); }
  static Role role_of(bool shared) { return shared ? Role::shared_gradients : Role::gradients; }
};

// A place from which the rank's part of a unit's complete gradient is read: its fp32 sum or, in a step of one
// micro-batch on one rank, the rounded gradient. A sharer's rounded gradient is then a second source, and the reader
// adds both.
struct GradientSource {
  Role role;  // sum, gradients or shared_gradients
  Slice slice;
};

// All-to-all of a gradient within a node whose micro-batches are one run (StepPlan::sums_in_nodes): the pieces of this
// rank's elements are added in rank order and rounded once. The gradient is cut into one piece per rank of the node,
// and these elements are one of the pieces.
struct NodeSum {
  CallGradient gradient;

  // Also adds the receive buffer. Returns the buffer of the rounded sum.
  int add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// All-to-all of a gradient: every rank's pieces of this rank's elements are added to its fp32 sum in rank order. After
// a NodeSum, each piece is a node's.
struct ReduceGradient {
  CallGradient gradient;  // in the buffer of a NodeSum if nodes sum first
  OutputBuffer sum;
  bool first;                 // nothing has been added to these elements yet
  OutputBuffer run_sum = {};  // the run (training.reduce_group) that is incomplete before or after this call

  // Also adds the receive buffer.
  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// Adds a unit's sum for its shared tensor to the sum of the unit that holds it.
struct Combine {
  int holder, sharer;
  int shared_sum, sum;
  // If sums are on the device by tiles (sums_in_tiles): the elements that both buffers hold, and the number of this
  // chunk. Empty: the buffers hold all.
  ElementRange range = {0, 0};
  int chunk = -1;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// True if the unit's sums are on the device tile by tile: on a single rank whose sums live in host memory, without runs
// of micro-batches (training.reduce_group) or frozen parameters. On NVMe they cannot be, because drives transfer whole
// pages and tiles do not end at pages.
bool sums_in_tiles(const StepPlan& plan, int unit);
// True if the task's buffer holds only elements [begin, end) of such a sum: tile or norm chunk number task.part.
bool holds_tile(const StepPlan& plan, const Task& task);

// The elements of the task's unit for which the task also reads the gradient of another unit that shares them; empty:
// none.
ElementRange also_in_shared_gradients(const TaskContext& context, const Task& task);

// The layout in whose flat buffer the task's elements count: the holder's if the task is `shared`, else the unit's own.
const UnitLayout& holder_of(const TaskContext& context, const Task& task);
// The part of `elements`, in the holder's flat buffer, that this rank owns.
ElementRange owned(const TaskContext& context, const ElementRange& elements, const UnitLayout& holder);
// The elements of the task's sum that this rank owns. A sum buffer may hold more than the rank's shard, if sums are
// sharded over fewer ranks; a shared sum holds only the elements that the rank owns.
device::View own_part_of_sum(const TaskContext& context, const Task& task);

// With training.reduce = "fast", each rank sums its micro-batches' gradients locally, and ranks exchange the rounded
// sums.

// Adds the gradient of one micro-batch to the fp32 sum of the earlier ones.
struct Accumulate {
  CallGradient gradient;
  OutputBuffer sum;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// Rounds the sum into the buffer of the last micro-batch's gradient.
struct Round {
  CallGradient gradient;
  OutputBuffer sum;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
