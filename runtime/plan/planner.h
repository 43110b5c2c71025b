#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "device/ops/optimizer.h"
#include "models/model.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// Blocks whose forward is run again together: [first, last] in units; kept ones have recompute = false.
struct Segment {
  int first, last;
  bool recompute;
};
// Cuts the model's blocks, which are the units that have an input and an output, as training.recompute says. Throws
// Error{usage} for a block that is not there.
std::vector<Segment> segments_of(const Recompute& recompute, const models::Model& model);

// What a plan is made from, all of it the same on every rank.
struct PlanRequest {
  const models::Model* model;
  models::RunShape shape;
  int ranks, accumulation;
  Placement placement;
  bool fast = false;      // training.reduce
  bool vertical = false;  // memory.order
  // Forwards and losses alone: no gradients, no optimizer, no consensus, no dropout.
  bool forward_only = false;
  int prefetch = 2;
  device::Algorithm algorithm = device::Algorithm::adamw;
  device::MomentFormat moments = device::MomentFormat::fp32;
  std::vector<Segment> segments;
  // Where parameters are sharded: a unit that is larger than this, gathered, is gathered, run, reduced and let go part
  // by part, at most two of them at once. 0: none.
  std::size_t tile_bytes = 0;
  // Elements that an update takes at once where state or gradient lie in another tier than it runs in: large enough for
  // transfers at full speed, small enough that host memory holds a few. A multiple of kShardAlignment.
  std::size_t update_chunk = std::size_t{2} << 20;
  // Where the step is a cycle and the optimizer's state lies on NVMe: that of the first unit, behind whose update
  // nothing could hide, is read while the step before still computes, into host memory of its own.
  bool read_ahead = false;
  // Bytes of host memory that state passes through on its way to a checkpoint; 0: the run writes none.
  std::size_t checkpoint_staging = 0;
};

// The step as tasks, with waits, offsets, predicted memory and bytes. Milliseconds; touches no device.
StepPlan make_plan(const PlanRequest& request);

// The parts of it, in the order in which they run; each fills in what its name says.
void assign_offsets(StepPlan& plan);
void derive_waits(StepPlan& plan);
void predict_memory(StepPlan& plan);

// First and last task that uses each buffer, in issue order; whole-cycle buffers live throughout.
struct Lifetime {
  int first, last;
};
std::vector<Lifetime> lifetimes_of(const StepPlan& plan);
// For how long a buffer keeps its bytes from others. A reduction runs beside the call that was issued before it, so
// what it writes has its place from that call on: in memory which the call leaves, it would run after.
std::vector<Lifetime> occupations_of(const StepPlan& plan);

}  // namespace strata::runtime
