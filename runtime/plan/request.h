#pragma once
#include <cstddef>
#include <vector>

#include "device/ops/step/optimizer.h"
#include "models/model.h"
#include "runtime/plan/placement.h"
#include "runtime/plan/segments.h"

namespace strata::runtime {

struct StepPlan;

// What a plan is made from, all of it the same on every rank.
struct PlanRequest {
  const models::Model* model;
  models::RunShape shape;
  Mesh mesh;
  int accumulation;
  Placement placement;
  bool fast = false;      // training.reduce
  int reduce_group = 1;   // training.reduce_group
  bool vertical = false;  // memory.order
  // Forwards and losses alone: no gradients, no optimizer, no consensus, no dropout.
  bool forward_only = false;
  int prefetch = 2;
  device::Algorithm algorithm = device::Algorithm::adamw;
  device::StorageFormat moments = device::StorageFormat::fp32;
  std::vector<Segment> segments;
  // Where parameters are sharded, or lie in another tier than the device: a unit that is larger than this, gathered, is
  // gathered, run, reduced and let go part by part, at most two of them at once. 0: none.
  std::size_t tile_bytes = 0;
  // Elements that an update takes at once where state or gradient lie in another tier than it runs in: large enough for
  // transfers at full speed, small enough that host memory holds a few. A multiple of kShardAlignment.
  std::size_t update_chunk = std::size_t{2} << 20;
  // Where the step is a cycle and the optimizer's state lies on NVMe: that of the first unit, behind whose update
  // nothing could hide, is read while the step before still computes, into host memory of its own.
  bool read_ahead = false;
  // forward_only: runs between the steps of this plan, of the same model and placement, over its parameters and in its
  // memory; outlives the making.
  const StepPlan* beside = nullptr;
  // Bytes of host memory that state passes through on its way to a checkpoint; 0: the run writes none.
  std::size_t checkpoint_staging = 0;
  // Bytes of host memory for what sequences keep (Sequences::keep_in); 0: nothing.
  std::size_t index_bytes = 0;
  // forward_only, of a classifier: bytes that ranks send each other of their rows' scores at once, and bytes of host
  // memory for what is kept of them (runtime/job/score_memory.h).
  std::size_t chunk_bytes = 0, score_bytes = 0;
  // For forecasts: the mean over sequences of the sum of their documents' squared lengths, which attention costs. 0: a
  // sequence is one document.
  double mean_squares = 0;
};

}  // namespace strata::runtime
