#pragma once
// runtime/plan/ says what a step is, before it runs: a StepPlan (here) is a list of tasks with their lanes, the buffers
// they use, what they wait for, and the byte offset of every buffer. mesh.h says whose elements are whose; request.h is
// what a plan is asked for, draft.h a plan being written; placement.h alone knows ZeRO stages; offsets.h and waits.h
// finish the list; validator.h proves it, knowing nothing of how it was made. Who writes one is runtime/planner/, what
// its tasks do is runtime/tasks/.

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
#include "runtime/plan/layout.h"
#include "runtime/plan/placement.h"
#include "runtime/plan/task_kind.h"

namespace strata::runtime {

// The in-order queues of a rank. Host-compute runs the update if the optimizer's state is not on the device; checkpoint
// reads state, wherever it is. Host is the thread that issues: its tasks run where the list has them, so that whatever
// stands behind one of them starts after it.
enum class LaneId : std::uint8_t {
  compute,
  gather,
  reduce,
  upload,
  download,
  disk_read,
  disk_write,
  host_compute,
  checkpoint,
  host
};
inline constexpr std::array<std::string_view, 10> kLaneNames = {"compute",    "gather",    "reduce",     "upload",
                                                                "download",   "disk_read", "disk_write", "host_compute",
                                                                "checkpoint", "host"};
inline constexpr std::size_t kLanes = kLaneNames.size();
// Those that train: reports of a step's time name them.
inline constexpr std::size_t kTrainingLanes = static_cast<std::size_t>(LaneId::checkpoint);
// Lanes that are threads of the host on every device. But for checkpoint they touch no memory of the device, as its
// lanes touch no other.
constexpr bool on_host(LaneId lane) {
  return lane == LaneId::disk_read || lane == LaneId::disk_write || lane == LaneId::host_compute ||
         lane == LaneId::checkpoint;
}

// When a task runs: in every step, or only in some. What is left out of a step neither waits nor is waited for in it;
// whoever waits for it waits for its newest run, however long ago.
enum class When : std::uint8_t {
  always,
  pending,     // if the step before left an update to be done; alone, when a run drains
  checkpoint,  // if a checkpoint begins; alone, at the end of a run
};
inline constexpr std::size_t kWhens = 3;

// What a buffer is to the task that uses it.
enum class Role : std::uint8_t {
  parameters,         // of the unit, those that it trains: whole, in the compute dtype
  frozen,             // those that it does not
  quantised,          // of these what is quantised, as it is stored
  unpacked,           // and in the compute dtype
  shared_parameters,  // those of the unit that holds what this one shares
  shard,              // this rank's shard of the unit's parameters
  x,                  // input of the unit
  y,                  // output of the unit
  saved,              // what forward keeps for backward
  residual,           // gradient of the residual stream: dy on entry, dx on exit
  gradients,          // of the unit's own parameters, one micro-batch, compute dtype
  shared_gradients,   // of what it shares with another
  local_sum,          // `fast`: fp32, this rank's micro-batches
  run_sum,            // fp32, the rank's part: a run of micro-batches that is not complete (training.reduce_group)
  sum,                // fp32, all ranks' micro-batches
  shared_sum,         // the same of what it shares with another
  staging,            // receive buffer of a collective
  master,
  moment1,
  moment2,
  batch,      // tokens, labels, positions and documents of all micro-batches of the step
  state,      // scalars of the step, what the ranks agreed on (StepState)
  pending,    // scalars of the step before, whose update is still to be done (StepScalars)
  losses,     // what the compute lane counts (LossState)
  squares,    // what the reduce lane counts (SquareState)
  constants,  // what the model looks up
  cache,      // keys and values of a unit, where the run generates
  logits,     // fp32, of the last row, where the run generates; a classifier's scores, where it does not train
  workspace,
  source,  // of an upload, download, read or write: each is followed by its target
  target,
};

enum class Access : std::uint8_t { read, write, update };  // update: reads and writes

// Up to whole pages, which direct I/O and DMA want.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + device::kBufferAlignment - 1) / device::kBufferAlignment * device::kBufferAlignment;
}

// A stretch of memory in a tier, at an offset that the planner chose from its lifetime.
struct Buffer {
  std::string name;
  Kind kind;
  Tier tier;
  std::size_t bytes;       // a multiple of device::kBufferAlignment
  bool whole_cycle;        // lives from step to step
  bool filled = false;     // holds something before step 1: state, constants, a cache of nothing yet
  std::size_t offset = 0;  // bytes, in the tier's arena
};

struct Use {
  int buffer;
  Role role;
  Access access;
  std::size_t offset = 0, bytes = 0;  // of the buffer; 0 bytes: all of it
  // The offset counts from the rank's own part of the buffer, of parameters or of sums: every rank touches other bytes.
  bool own = false;
  int copies = -1;  // what is written are the bytes of that use of the same task, unchanged; -1: it is no copy
};

// Bytes [begin, end) of the buffer's tier that a use may touch.
struct ByteRange {
  std::size_t begin, end;
};
inline ByteRange touched_by(const Use& use, const Buffer& buffer) {
  if (use.bytes == 0 || use.own) return {buffer.offset, buffer.offset + buffer.bytes};
  return {buffer.offset + use.offset, buffer.offset + use.offset + use.bytes};
}

// What a task costs, for the simulator.
struct Cost {
  double flops = 0, attention_flops = 0;     // of products; of attention, causal
  double bytes = 0;                          // through memory
  double sent_bytes = 0;                     // by this rank to others
  double between_bytes = 0;                  // of these, to other nodes
  double host_bytes = 0;                     // between device and host
  double read_bytes = 0, written_bytes = 0;  // from and to NVMe
};

struct Task {
  TaskKind kind;
  LaneId lane;
  int unit = -1;         // -1: none
  int micro_batch = -1;  // g, of this rank; -1: none
  int part = -1;         // of a unit that is gathered part by part; of a loss step, the table's tile; -1: all
  std::optional<models::LossStep> step = {};  // loss: by tiles of the table
  // Elements of the trained pool (the holder's if `shared`) that its parameters or gradients buffer holds; update: of
  // the rank's part, counted from its start; combine: those that another unit shares; gather, unpack: of `pool`.
  std::size_t begin = 0, end = 0;
  // Forward, backward, loss: the first element that its buffers of the other pools hold.
  std::size_t frozen_begin = 0, quantised_begin = 0;
  std::size_t at_once = 0;  // reduce: elements that travel at once
  bool shared = false;      // reduce, accumulate, round: of the unit's gradient for what it shares with another
  PoolKind pool = PoolKind::trained;  // gather, unpack: of which pool
  bool first = false;                 // reduce, accumulate: the sum starts here
  bool border = false;  // it stands between two steps: by its kind, or as a copy of what the host writes and reads
  When when = When::always;
  std::vector<Use> uses;
  // Tasks of whose newest runs it waits for the end: one at or behind its own place in the list ran in a step before.
  std::vector<int> waits;
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

// Bytes of a step that one rank reads from and writes to each tier beside the device.
struct IoBytes {
  std::array<std::uint64_t, kTiers> read{}, written{};
  std::uint64_t total() const;
  std::uint64_t of(Tier tier) const {
    return read[static_cast<std::size_t>(tier)] + written[static_cast<std::size_t>(tier)];
  }
  IoBytes& operator+=(const IoBytes& other);
  // The mean of a step, after `steps` alike.
  IoBytes per_step(std::int64_t steps) const;
};

// Where a unit's state lies from step to step: buffers. In fp32 the master is the parameters' buffer.
struct Home {
  int parameters = -1, frozen = -1, quantised = -1, master = -1, moment1 = -1, moment2 = -1;
  // The update goes by chunks of so many elements of the rank's part. A chunk's moments, whose bytes depend on their
  // formats and so on the rank, lie in a slot that is large enough for every rank's: [slots[i], slots[i + 1]) of bytes.
  std::size_t chunk = 0;
  std::vector<std::size_t> slots = {};

  int of(PoolKind pool) const {
    return pool == PoolKind::trained ? parameters : pool == PoolKind::frozen ? frozen : quantised;
  }
};

// What the tasks of a step share, a buffer each; -1: the plan has none. By role.
struct ControlBuffers {
  int batch = -1, state = -1, losses = -1, squares = -1, constants = -1, logits = -1, pending = -1;
};

// `bytes` of each rank, in rank order: where collectives reach them, and where the host does. -1: the plan has none.
struct RankChunks {
  std::size_t bytes = 0;
  int buffer = -1, host_buffer = -1;
};

// Everything a rank does in a step: the same list for every rank, in the order in which it is issued. The list is a
// ring: nothing separates two steps but what their tasks wait for.
struct StepPlan {
  int accumulation;
  device::Device device;
  std::size_t tokens;  // of a micro-batch
  device::DType dtype;
  bool fast, vertical;
  int reduce_group = 1;  // consecutive micro-batches of a run, whose sum is rounded before it is added to the others
  bool forward_only;     // forwards and losses (or logits) alone: there is no state but parameters
  // A cycle: what the consensus decided is carried out at the start of the next step, each unit just before its
  // forward, behind which disk and host work hide. Else the update ends the step.
  bool cyclic;
  std::size_t tile_bytes;  // units larger than this, gathered, are gathered part by part; 0: none is
  Placement placement;
  Layout layout;
  std::vector<Buffer> buffers;
  std::vector<Task> tasks;
  std::vector<Home> homes;  // by unit
  // As lanes see them; as the host does, which on a GPU has buffers of its own that stand for them.
  ControlBuffers control, host_control;
  int index_buffer = -1;       // where packed data keeps which documents share a sequence; -1: nowhere
  int score_buffer = -1;       // where an evaluation keeps a classifier's scores, memory of the host; -1: nowhere
  RankChunks chunks;           // what ranks send each other between two steps
  Memory memory;               // predicted
  comm::CommBytes comm_bytes;  // predicted, sent by one rank in a step
  IoBytes io_bytes;            // predicted

  const Mesh& mesh() const { return layout.mesh; }
  int ranks() const { return mesh().world; }
  // Micro-batches of a step, over all ranks.
  std::uint64_t micro_batches() const {
    return static_cast<std::uint64_t>(mesh().data()) * static_cast<std::uint64_t>(accumulation);
  }
  // Shorthands of the placement on this mesh: a rank by itself holds everything.
  bool sharded_parameters() const { return placement.parameters.pieces(mesh()) > 1; }
  bool sharded_optimizer() const { return placement.optimizer.pieces(mesh()) > 1; }
  // A rank updates less than it holds of the parameters, and gets the rest from those that have the other parts of it.
  bool spreads() const { return placement.optimizer.pieces(mesh()) > placement.parameters.pieces(mesh()); }
  // A rank holds more of the sums than those of its own shard, and gets the rest from other ranks: for the update, or
  // as zero.gradients_group says.
  bool gathers_sums() const { return placement.sums().pieces(mesh()) < mesh().data(); }
  // A rank holds sums of more than it updates.
  bool copies_sums() const { return placement.sums().pieces(mesh()) < placement.optimizer.pieces(mesh()); }
  // A step of one micro-batch needs no fp32 sum: the rounded gradient is the sum. If a unit shares a tensor of another,
  // the two gradients are added when they are read; more than two are summed. So are those of parts.
  bool has_sums() const {
    return mesh().data() > 1 || accumulation > 1 || (tile_bytes > 0 && placement.parameters.tier != Tier::device) ||
           std::any_of(layout.units.begin(), layout.units.end(),
                       [](const UnitLayout& unit) { return unit.sharers.size() > 1; });
  }
  // How a unit's flat buffer is cut into what ranks hold of its parameters, and of its optimizer state, which a rank's
  // piece of is its part: that is what it updates.
  Cut parameters_of(std::size_t unit, PoolKind pool = PoolKind::trained) const {
    return layout.units[unit].pool(pool).shards.in_pieces(placement.parameters.pieces(mesh()));
  }
  // How parameters at rest lie in memory.
  device::StorageFormat stored_in(PoolKind pool) const {
    return pool == PoolKind::quantised ? layout.quantised : format_of(dtype);
  }
  Cut parts_of(std::size_t unit) const {
    return layout.units[unit].shards.in_pieces(placement.optimizer.pieces(mesh()));
  }
  // And into what ranks hold of its gradients' sum; a rank's part lies within its piece.
  Cut sums_of(std::size_t unit) const { return layout.units[unit].shards.in_pieces(placement.sums().pieces(mesh())); }
  // Of one moment of elements [begin, end) of that part, counted from its start: the largest over the ranks.
  std::size_t moment_bytes(std::size_t unit, std::size_t begin, std::size_t end) const;
};

// Of everything in the plan that ranks must have alike to train together; names and costs are left out.
std::uint64_t hash_of(const StepPlan& plan);

}  // namespace strata::runtime
