#pragma once
// runtime/plan/ describes a step before it runs. A StepPlan (here) is a list of tasks with their lanes, the buffers
// they use, the tasks they wait for, and the byte offset of every buffer. layout/ determines which rank holds what;
// request.h has the inputs of a plan, draft.h a plan being written; passes.h completes the list; proof/ proves it
// independently of how it was made. runtime/planner/ writes plans, and runtime/tasks/ defines what their tasks do.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "device/memory.h"
#include "models/model.h"
#include "runtime/plan/layout/layout.h"
#include "runtime/plan/layout/placement.h"
#include "runtime/plan/layout/stages.h"
#include "runtime/plan/task_kind.h"

namespace strata::runtime {

// The in-order queues of a rank. exchange adds partial sums over the ranks that share each layer. stage_forward and
// stage_backward send to and receive from neighbouring pipeline stages. host_compute runs the update if the optimizer's
// state is not on the device; checkpoint reads state in any tier. host is the issuing thread itself: it runs its tasks
// when it reaches them in the list, so tasks listed after one of them start after it.
enum class LaneId : std::uint8_t {
  compute,
  gather,
  reduce,
  exchange,
  stage_forward,
  stage_backward,
  upload,
  download,
  disk_read,
  disk_write,
  host_compute,
  checkpoint,
  host
};
inline constexpr std::array<std::string_view, 13> kLaneNames = {
    "compute",   "gather",     "reduce",       "exchange",   "stage_forward", "stage_backward", "upload", "download",
    "disk_read", "disk_write", "host_compute", "checkpoint", "host"};
inline constexpr std::size_t kLanes = kLaneNames.size();
// The lanes before `checkpoint` do the training; reports of a step's time list them.
inline constexpr std::size_t kTrainingLanes = static_cast<std::size_t>(LaneId::checkpoint);
// True if the lane is a thread of the host on every device. Except for checkpoint, such lanes touch no device memory.
// Of the other lanes, only upload and download touch host memory.
constexpr bool on_host(LaneId lane) {
  return lane == LaneId::disk_read || lane == LaneId::disk_write || lane == LaneId::host_compute ||
         lane == LaneId::checkpoint;
}

// The steps in which a task runs. A task that is left out of a step does not wait in it. A task that waits for it waits
// for its newest run, in any earlier step.
enum class When : std::uint8_t {
  always,
  pending,     // if the previous step left an update; alone, when a run drains
  checkpoint,  // if a checkpoint begins; alone, at the end of a run
};
inline constexpr std::size_t kWhens = 3;

// The role of a buffer in the task that uses it.
enum class Role : std::uint8_t {
  parameters,         // the unit's trained parameters, unsharded, in the compute dtype
  frozen,             // its frozen parameters
  quantised,          // its quantised parameters, as stored
  unpacked,           // the same in the compute dtype
  shared_parameters,  // parameters of the unit that holds what this one shares
  shard,              // this rank's shard of the unit's parameters
  x,                  // input of the unit
  y,                  // output of the unit
  saved,              // activations that forward keeps for backward
  partial,            // fp32: the sums over this rank's virtual shards, at a seam of a call
  total,              // their sum over the ranks that share the unit's layers
  residual,           // gradient of the residual stream: dy on entry, dx on exit
  gradients,          // gradients of the unit's own parameters: one micro-batch, compute dtype
  shared_gradients,   // gradients of the parameters that it shares with another unit
  node_sum,           // sum of a node's micro-batches, rounded to the compute dtype: this rank's piece in its node
  local_sum,          // `fast`: fp32, over this rank's micro-batches
  run_sum,            // fp32, this rank's part, over an incomplete run of micro-batches (training.reduce_group)
  sum,                // fp32, over all ranks' micro-batches
  shared_sum,         // the same, for the parameters that the unit shares with another
  staging,            // receive buffer of a collective
  master,
  moment1,
  moment2,
  batch,      // tokens, labels, positions and documents of all micro-batches of the step
  state,      // scalars of the step, and the ranks' consensus (StepState)
  pending,    // scalars of the previous step, whose update is still to be done (StepScalars)
  losses,     // loss and counters that the compute lane adds to (LossState)
  squares,    // sum of squares that the reduce lane adds to (SquareState)
  constants,  // tables of the model that no step changes
  cache,      // what a unit keeps from row to row, if the run generates: keys and values, DoRA's scales
  scores,     // fp32: logits of the last row if the run generates; in an evaluation a classifier's logits
  workspace,
  source,  // the source of an upload, download, read or write; the next use is the target
  target,
};

enum class Access : std::uint8_t { read, write, update };  // update: reads and writes

// `bytes` rounded up to whole pages, as direct I/O and DMA require.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + device::kBufferAlignment - 1) / device::kBufferAlignment * device::kBufferAlignment;
}

// A range of bytes in a tier, at an offset chosen from its lifetime (passes.h).
struct Buffer {
  std::string name;
  Kind kind;
  Tier tier;
  std::size_t bytes;       // a multiple of device::kBufferAlignment
  bool persistent;         // lives from step to step
  bool filled = false;     // has contents before step 1: state, constants, an empty cache
  std::size_t offset = 0;  // bytes, in the tier's arena
};

struct Use {
  int buffer;
  Role role;
  Access access;
  std::size_t offset = 0, bytes = 0;  // the part of the buffer; 0 bytes: the whole buffer
  // True if the offset counts from the rank's own part of the parameters or sums: every rank then touches different
  // bytes.
  bool own = false;
  int copies = -1;  // index of the use in this task whose bytes are written here unchanged; -1: not a copy
};

// Bytes [begin, end) of a tier's arena. touched_by(): the bytes that a use may touch; for `own`, the whole buffer.
struct ByteRange {
  std::size_t begin, end;
};
inline ByteRange touched_by(const Use& use, const Buffer& buffer) {
  if (use.bytes == 0 || use.own) return {buffer.offset, buffer.offset + buffer.bytes};
  return {buffer.offset + use.offset, buffer.offset + use.offset + use.bytes};
}

// The cost of a task, for the simulator.
struct Cost {
  double flops = 0, attention_flops = 0;     // operations of products, and of causal attention
  double bytes = 0;                          // through memory
  double sent_bytes = 0;                     // bytes that this rank sends to others
  double between_bytes = 0;                  // the share of sent_bytes that goes to other nodes
  double host_bytes = 0;                     // between device and host
  double read_bytes = 0, written_bytes = 0;  // bytes from and to NVMe
};

struct Task {
  TaskKind kind;
  LaneId lane;
  int unit = -1;                              // -1: none
  int micro_batch = -1;                       // g, of this rank; -1: none
  int part = -1;                              // part of the unit, or tile of the table in a loss step; -1: all
  std::optional<models::LossStep> step = {};  // the step of a loss that runs by tiles of the table
  // Elements of the trained pool (the holder's if `shared`) that its parameters or gradients buffer holds. update:
  // elements of the rank's part, counted from its start; combine: elements that another unit shares; gather, unpack:
  // elements of `pool`.
  std::size_t begin = 0, end = 0;
  // forward, backward, loss: the first elements that its buffers of the other pools hold.
  std::size_t frozen_begin = 0, quantised_begin = 0;
  // reduce: elements exchanged at a time; exchange: elements that a rank adds; gather rows: the matrices
  std::size_t at_once = 0;
  int stretch = -1;  // a call with seams: its stretch; exchange: the stretch before it; -1: the call is one stretch
  bool overlaps_exchange = false;  // a call with seams: the work that does not wait for the exchange after the stretch
  bool backward = false;           // exchange, gather rows: of a backward
  bool own_rows = false;           // exchange: the total has only this rank's rows of the sum
  bool shared = false;             // reduce, accumulate, round: the gradient of what the unit shares with another
  PoolKind pool = PoolKind::trained;  // gather, unpack: the pool
  bool first = false;                 // reduce, accumulate: the sum starts here
  int peer = -1;                      // send, receive: the other pipeline stage
  bool boundary = false;  // belongs to the step boundary: by its kind, or as a copy of what the host writes and reads
  When when = When::always;
  std::vector<Use> uses;
  // Tasks whose newest runs must have ended before it starts. The newest run of a task at or after its own place in the
  // list was in an earlier step.
  std::vector<int> waits;
  Cost cost;

  // The first buffer in that role; -1: none.
  int buffer(Role role) const;
};
// For traces and errors: "backward block 3, micro-batch 1".
std::string name_of(const Task& task, const models::Model& model);

// Peak bytes of a tier, and of each kind of buffer in it. The kinds may peak at different times.
struct TierMemory {
  std::size_t peak = 0;
  std::array<std::size_t, kKinds> by_kind{};
};
using Memory = std::array<TierMemory, kTiers>;

// Bytes that one rank reads from and writes to each tier other than the device in a step.
struct IoBytes {
  std::array<std::uint64_t, kTiers> read{}, written{};
  std::uint64_t total() const;
  std::uint64_t of(Tier tier) const {
    return read[static_cast<std::size_t>(tier)] + written[static_cast<std::size_t>(tier)];
  }
  IoBytes& operator+=(const IoBytes& other);
  // The mean per step of a total over `steps` steps.
  IoBytes per_step(std::int64_t steps) const;
};

// The buffers in which a unit's state lives from step to step; -1: none. In fp32 the parameters are the master.
struct StateBuffers {
  int parameters = -1, frozen = -1, quantised = -1, master = -1, moment1 = -1, moment2 = -1;
  // The rank's part is updated in chunks of `chunk` elements. The moments of chunk i begin at byte slots[i] and end
  // before slots[i + 1]. Their size depends on their formats, and so on the rank; a slot is large enough for every
  // rank's.
  std::size_t chunk = 0;
  std::vector<std::size_t> slots = {};

  int of(PoolKind pool) const {
    return pool == PoolKind::trained ? parameters : pool == PoolKind::frozen ? frozen : quantised;
  }
};

// The buffers that all tasks of a step share, by role; -1: the plan has none.
struct ControlBuffers {
  int batch = -1, state = -1, losses = -1, squares = -1, constants = -1, scores = -1, pending = -1;
};

// Buffers with `bytes` of each rank, in rank order: one for collectives, one for the host. -1: the plan has none.
struct RankChunks {
  std::size_t bytes = 0;
  int buffer = -1, host_buffer = -1;
};

// Everything a rank does in a step: one list for all ranks, in issue order. The list is a ring: only the waits of its
// tasks separate two steps.
struct StepPlan {
  int accumulation;
  device::Device device;
  std::size_t tokens;  // tokens of a micro-batch
  std::size_t rows;    // rows of its activations between blocks: the tokens, or this rank's part of them
  device::DType dtype;
  bool fast, vertical;
  int reduce_group = 1;  // consecutive micro-batches that are summed and rounded as one run (training.reduce_group)
  bool forward_only;     // only forwards and losses (or logits): the only state is parameters
  // If true, the update that the consensus decided on runs in the next step, each unit's just before its forward, which
  // lets disk and host work overlap with the forward of the units before it. Otherwise the update ends the step.
  bool cyclic;
  std::size_t tile_bytes;  // units whose gathered bytes exceed this are gathered part by part; 0: none
  Placement placement;
  Layout layout;
  std::vector<Buffer> buffers;
  std::vector<Task> tasks;
  std::vector<StateBuffers> state_buffers;  // one per unit
  // The control buffers of lanes and of the host: on a GPU the host has its own buffers, which are copied.
  ControlBuffers control, host_control;
  int index_buffer = -1;       // packed data: which documents share a sequence; -1: none
  int score_buffer = -1;       // a classifier's scores in an evaluation, in host memory; -1: none
  RankChunks chunks;           // the data that ranks send each other between steps
  Memory memory;               // predicted
  comm::CommBytes comm_bytes;  // predicted, sent by one rank in a step
  IoBytes io_bytes;            // predicted

  int stage = 0;                  // the plan's stage of the pipeline
  StageUnits own;                 // the units of this stage; the plan lists only these
  std::vector<UnitRange> pieces;  // the pieces of all stages

  const Mesh& mesh() const { return layout.mesh; }
  int ranks() const { return mesh().world; }
  // Micro-batches of a step, over all data ranks.
  std::uint64_t micro_batches() const {
    return static_cast<std::uint64_t>(mesh().data()) * static_cast<std::uint64_t>(accumulation);
  }
  // Shorthands for the placement on this mesh. On one rank nothing is sharded.
  bool sharded_parameters() const { return placement.parameters.pieces(mesh()) > 1; }
  bool sharded_optimizer() const { return placement.optimizer.pieces(mesh()) > 1; }
  // True if a rank updates only a part of the parameters it holds, and receives the rest from other ranks.
  bool gathers_updated() const { return placement.optimizer.pieces(mesh()) > placement.parameters.pieces(mesh()); }
  // True if a rank holds sums of more than its own shard, and receives the rest from other ranks: for the update, or
  // because of zero.gradients_group.
  bool gathers_sums() const { return placement.sums().pieces(mesh()) < mesh().data(); }
  // True if each run of micro-batches (training.reduce_group) belongs to one node, which sums it before it crosses to
  // other nodes.
  bool sums_in_nodes() const {
    return reduce_group > 1 && reduce_group == mesh().data_per_node() && mesh().has_group(reduce_group);
  }
  // True if a rank holds sums of more than it updates.
  bool copies_sums() const { return placement.sums().pieces(mesh()) < placement.optimizer.pieces(mesh()); }
  // True if gradients are summed in fp32. A step of one micro-batch needs no sum: the rounded gradient is complete. If
  // one unit shares a tensor of another, their two gradients are added when they are read; more than two are summed,
  // and so are the gradients of parts. All stages of a pipeline sum, because some of them may have gradients of parts.
  bool has_sums() const {
    return mesh().data() > 1 || accumulation > 1 || mesh().stages > 1 ||
           (tile_bytes > 0 && placement.parameters.tier != Tier::device) ||
           std::any_of(layout.units.begin(), layout.units.end(),
                       [](const UnitLayout& unit) { return unit.sharers.size() > 1; });
  }
  // How a unit's flat buffer is cut into the parameters that each rank holds.
  Cut parameters_of(std::size_t unit, PoolKind pool = PoolKind::trained) const {
    return layout.units[unit].pool(pool).shards.in_pieces(placement.parameters.pieces(mesh()));
  }
  // The format in which parameters are stored between calls.
  device::StorageFormat stored_in(PoolKind pool) const {
    return pool == PoolKind::quantised ? layout.quantised : format_of(dtype);
  }
  // How a unit's flat buffer is cut into optimizer state. A rank's piece is called its part: the elements that the rank
  // updates.
  Cut parts_of(std::size_t unit) const {
    return layout.units[unit].shards.in_pieces(placement.optimizer.pieces(mesh()));
  }
  // How a unit's flat buffer is cut into gradient sums. A rank's part lies within its piece of the sums.
  Cut sums_of(std::size_t unit) const { return layout.units[unit].shards.in_pieces(placement.sums().pieces(mesh())); }
  // Bytes of one moment of elements [begin, end) of a rank's part, counted from its start: the maximum over the ranks.
  std::size_t moment_bytes(std::size_t unit, std::size_t begin, std::size_t end) const;
};

// A hash of everything in the plan that must be equal on all ranks if they train together. Names and costs do not
// count.
std::uint64_t hash_of(const StepPlan& plan);

// When a task ran, in ns of the steady clock, or since the start of a simulated step; {0, 0}: it did not run.
struct Span {
  std::int64_t begin = 0, end = 0;
};

}  // namespace strata::runtime
