#pragma once
#include <cstddef>
#include <vector>

#include "device/ops/step/optimizer.h"
#include "models/model.h"
#include "runtime/plan/layout/placement.h"
#include "runtime/plan/layout/stages.h"

namespace strata::runtime {

struct StepPlan;

// All inputs of a plan; the same on every rank.
struct PlanRequest {
  const models::Model* model;
  models::RunShape shape;
  Mesh mesh;
  int accumulation;
  Placement placement;
  // The number of micro-batches that the batch has room for, if it exceeds `accumulation`: a plan of a shortened step
  // reserves room for all of a step's.
  int batches = 0;
  bool fast = false;      // training.reduce
  int reduce_group = 1;   // training.reduce_group
  bool vertical = false;  // memory.order
  // The pieces of the model, a multiple of the mesh's pipeline stages, and the stage whose plan is made. Empty: there
  // is one stage.
  std::vector<UnitRange> pieces = {};
  int stage = 0;
  Schedule schedule = Schedule::one_forward_one_backward;
  // Plan only forwards and losses: no gradients, no optimizer, no consensus, no dropout.
  bool forward_only = false;
  int prefetch = 2;
  device::Algorithm algorithm = device::Algorithm::adamw;
  device::StorageFormat moments = device::StorageFormat::fp32;
  std::vector<Segment> segments;
  // If parameters are sharded or not on the device, a unit whose gathered bytes exceed this is gathered, run, reduced
  // and released part by part, with at most two parts present. 0: no unit is tiled.
  std::size_t tile_bytes = 0;
  // Elements per chunk of an update whose state or gradient is in another tier than the update runs in: large enough
  // for transfers at full speed, and small enough for host memory to hold a few chunks. A multiple of kShardAlignment.
  std::size_t update_chunk = std::size_t{2} << 20;
  // If the plan is cyclic and the optimizer's state is on NVMe: read the first unit's state while the previous step
  // still computes, into separate host memory. No computation of the unit's own step could hide that read.
  bool read_ahead = false;
  // forward_only: a plan of the same model and placement, between whose steps this one runs, on its parameters and in
  // its memory. It must outlive make_plan.
  const StepPlan* memory_of = nullptr;
  // Bytes of host memory through which state passes on its way to a checkpoint; 0: the run writes no checkpoints.
  std::size_t checkpoint_staging = 0;
  // Bytes of host memory for the index of sequences (Sequences::keep_in); 0: none.
  std::size_t index_bytes = 0;
  // forward_only, classifiers: bytes of scores that each rank sends at a time, and bytes of host memory for the scores
  // that it keeps (runtime/job/score_memory.h).
  std::size_t chunk_bytes = 0, score_bytes = 0;
  // For forecasts: the mean over sequences of the sum of their documents' squared lengths. Attention's cost is
  // proportional to it. 0: a sequence is one document.
  double mean_squares = 0;
};

}  // namespace strata::runtime
