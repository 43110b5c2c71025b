#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "models/model.h"
#include "runtime/layout.h"
#include "runtime/placement.h"

namespace strata::runtime {

// The in-order queues of a rank. Offload adds upload, download, disk and host-compute.
enum class LaneId : std::uint8_t { compute, gather, reduce };
inline constexpr std::array<std::string_view, 3> kLaneNames = {"compute", "gather", "reduce"};
inline constexpr std::size_t kLanes = kLaneNames.size();

enum class TaskKind : std::uint8_t {
  gather,       // all-gather of a unit's parameter shards into a buffer
  forward,      // a unit's forward of one micro-batch
  recompute,    // the same once more, in backward, for what it saves
  loss,         // the head: forward, loss and backward of one micro-batch
  backward,     // a unit's backward of one micro-batch
  accumulate,   // `fast`: a gradient onto the local fp32 sum
  round,        // `fast`: the local fp32 sum to the wire dtype
  reduce,       // all-to-all of a gradient, pieces added onto the fp32 shard in rank order
  combine,      // the head's sum of a tied weight onto the embedding's
  norm,         // squares of this rank's part of the gradient
  gather_sums,  // all-gather of fp32 gradient sums, where the optimizer is whole
  consensus,    // norm, loss and stop requests of all ranks: clip factor, skip
  update,       // optimizer step of this rank's part
};
inline constexpr std::array<std::string_view, 13> kTaskNames = {
    "gather", "forward", "recompute", "loss",        "backward",  "accumulate", "round",
    "reduce", "combine", "norm",      "gather sums", "consensus", "update"};

// What a buffer is to the task that uses it.
enum class Role : std::uint8_t {
  parameters,      // of the unit: whole, in the compute dtype
  tied,            // the embedding unit's parameters, where the head shares them
  shard,           // this rank's shard of the unit's parameters
  x,               // input of the unit
  y,               // output of the unit
  saved,           // what forward keeps for backward
  residual,        // gradient of the residual stream: dy on entry, dx on exit
  gradients,       // of the unit, one micro-batch, compute dtype
  tied_gradients,  // the head's of the tied weight
  local_sum,       // `fast`: fp32, this rank's micro-batches
  sum,             // fp32, all ranks' micro-batches
  tied_sum,        // fp32, the head's of the tied weight
  staging,         // receive buffer of a collective
  master,
  moment1,
  moment2,
  batch,      // tokens, labels and positions of all micro-batches of the step
  state,      // scalars of the step, what the ranks agreed on (StepState)
  losses,     // what the compute lane counts (LossState)
  squares,    // what the reduce lane counts (SquareState)
  constants,  // what the model looks up
  cache,      // keys and values of a unit, where the run generates
  logits,     // fp32, of the last row, where the run generates
  workspace,
};

enum class Access : std::uint8_t { read, write, update };  // update: reads and writes

// A stretch of memory in a tier, at an offset that the planner chose from its lifetime.
struct Buffer {
  std::string name;
  Kind kind;
  Tier tier;
  std::size_t bytes;       // a multiple of device::kBufferAlignment
  bool whole_cycle;        // lives from step to step
  std::size_t offset = 0;  // bytes, in the tier's arena
};

struct Use {
  int buffer;
  Role role;
  Access access;
};

// What a task costs, for the simulator: one of the three bounds it.
struct Cost {
  double flops = 0;       // of products
  double bytes = 0;       // through memory
  double sent_bytes = 0;  // by this rank to others
};

struct Task {
  TaskKind kind;
  LaneId lane;
  int unit = -1;         // -1: none
  int micro_batch = -1;  // g, of this rank; -1: none
  int part = -1;         // of a unit that is gathered part by part; of a loss step, the table's tile; -1: all
  std::optional<models::LossStep> step = {};  // loss: by tiles of the table
  // Elements of the flat buffer (the embedding's where `tied`) that its parameters or gradients buffer holds.
  std::size_t begin = 0, end = 0;
  std::size_t at_once = 0;  // reduce: elements that travel at once
  bool tied = false;        // reduce, norm, ...: of the head's gradient of the tied weight
  bool first = false;       // reduce, accumulate: the sum starts here
  std::vector<Use> uses;
  std::vector<int> waits;  // earlier tasks of other lanes
  Cost cost;

  // The buffer in that role; -1: none.
  int buffer(Role role) const;
};
// "backward block 3, micro-batch 1": for traces and errors.
std::string name_of(const Task& task, const models::Model& model);

// Peak bytes of a tier, and of each kind of buffer in it (each at its own worst moment).
struct TierMemory {
  std::size_t peak = 0;
  std::array<std::size_t, kKinds> by_kind{};
};
using Memory = std::array<TierMemory, kTiers>;

// Everything a rank does in a step: the same list for every rank, in the order in which it is issued.
struct StepPlan {
  int ranks, accumulation;
  std::size_t tokens;  // of a micro-batch
  device::DType dtype;
  bool fast, vertical;
  bool forward_only;       // forwards and losses (or logits) alone: there is no state but parameters
  std::size_t tile_bytes;  // units larger than this, gathered, are gathered part by part; 0: none is
  Placement placement;
  Layout layout;
  std::vector<Buffer> buffers;
  std::vector<Task> tasks;
  Memory memory;               // predicted
  comm::CommBytes comm_bytes;  // predicted, sent by one rank in a step

  // Shorthands of the placement for this number of ranks.
  bool sharded_parameters() const { return placement.parameters.sharded && ranks > 1; }
  bool sharded_optimizer() const { return placement.optimizer.sharded && ranks > 1; }
  // A step of one micro-batch needs no fp32 sum: the rounded gradient is the sum.
  bool has_sums() const { return ranks > 1 || accumulation > 1; }
  // Elements of the optimizer's part of a unit on this rank, and where it begins.
  std::size_t part_size(std::size_t unit) const {
    return sharded_optimizer() ? layout.units[unit].shard : layout.units[unit].padded;
  }
  std::size_t part_begin(std::size_t unit, int rank) const {
    return sharded_optimizer() ? layout.units[unit].shard * static_cast<std::size_t>(rank) : 0;
  }
  // Of one moment of that part: the largest over the ranks.
  std::size_t moment_bytes(std::size_t unit) const;
};

// Of everything in the plan that ranks must have alike to train together; names and costs are left out.
std::uint64_t hash_of(const StepPlan& plan);

}  // namespace strata::runtime
