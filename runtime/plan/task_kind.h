#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::runtime {

enum class TaskKind : std::uint8_t {
  gather,       // all-gather of a unit's parameter shards into a buffer
  unpack,       // quantised parameters of a unit in the compute dtype
  forward,      // a unit's forward of one micro-batch
  recompute,    // the same once more, in backward, for what it saves
  loss,         // forward, loss and backward of the last unit and one micro-batch
  backward,     // a unit's backward of one micro-batch
  accumulate,   // `fast`: a gradient onto the local fp32 sum
  round,        // `fast`: the local fp32 sum to the wire dtype
  reduce,       // all-to-all of a gradient, pieces added onto the fp32 shard in rank order
  combine,      // a unit's sum for what it shares onto the sum of the unit that holds that
  norm,         // squares of this rank's part of the gradient
  gather_sums,  // all-gather of fp32 gradient sums, if ranks share the update of a shard
  consensus,    // norm, loss and requests of all ranks: clip factor, skip
  update,       // optimizer step of this rank's part, or of a chunk of it
  spread,       // all-gather of updated parameters, if a rank updates a part of what it holds
  upload,       // host to device
  download,     // device to host
  read,         // NVMe to host
  write,        // host to NVMe
  save,         // a unit's state, read for a checkpoint
  publish,      // the checkpoint is made durable
  carry,        // the scalars of the step before, for the update that it left
  host_write,   // the host writes what is new in this step: batch, scalars, counters at zero
  host_read,    // the host reads what came of it; from here to the next host_write the batch is the caller's
};

// What the ranks do together in a task. None of them goes past it before all have come to it.
enum class Collective : std::uint8_t { none, all_gather, all_to_all, exchange };

// The speed of a machine (forecast/machine.h) at which a task's bytes go through memory.
enum class Traffic : std::uint8_t { blocks, loss, optimizer, sums, norm };

// A kind of task, as everybody but its own struct (runtime/tasks) sees it.
struct TaskTraits {
  TaskKind kind;
  std::string_view name;
  Collective collective = Collective::none;
  Traffic traffic = Traffic::blocks;
  bool border = false;  // it stands between two steps, and is of no unit
};

// The one list of kinds, in the order of the enumeration. What carries a kind out is in execute/task_table.h.
inline constexpr auto kTaskTraits = std::to_array<TaskTraits>({
    {TaskKind::gather, "gather", Collective::all_gather},
    {TaskKind::unpack, "unpack"},
    {TaskKind::forward, "forward"},
    {TaskKind::recompute, "recompute"},
    {TaskKind::loss, "loss", Collective::none, Traffic::loss},
    {TaskKind::backward, "backward"},
    {TaskKind::accumulate, "accumulate", Collective::none, Traffic::sums},
    {TaskKind::round, "round", Collective::none, Traffic::sums},
    {TaskKind::reduce, "reduce", Collective::all_to_all, Traffic::sums},
    {TaskKind::combine, "combine", Collective::none, Traffic::sums},
    {TaskKind::norm, "norm", Collective::none, Traffic::norm},
    {TaskKind::gather_sums, "gather sums", Collective::all_gather},
    {TaskKind::consensus, "consensus", Collective::exchange, Traffic::blocks, true},
    {TaskKind::update, "update", Collective::none, Traffic::optimizer},
    {TaskKind::spread, "spread", Collective::all_gather},
    {TaskKind::upload, "upload"},
    {TaskKind::download, "download"},
    {TaskKind::read, "read"},
    {TaskKind::write, "write"},
    {TaskKind::save, "save"},
    {TaskKind::publish, "publish", Collective::exchange, Traffic::blocks, true},
    {TaskKind::carry, "carry", Collective::none, Traffic::blocks, true},
    {TaskKind::host_write, "host write", Collective::none, Traffic::blocks, true},
    {TaskKind::host_read, "host read", Collective::none, Traffic::blocks, true},
});
inline constexpr std::size_t kTaskKinds = kTaskTraits.size();

constexpr const TaskTraits& traits_of(TaskKind kind) {
  return kTaskTraits[static_cast<std::size_t>(kind)];
}
static_assert(
    [] {
      for (std::size_t row = 0; row < kTaskKinds; ++row)
        if (static_cast<std::size_t>(kTaskTraits[row].kind) != row) return false;
      return true;
    }(),
    "a row of kTaskTraits is not in its kind's place");

}  // namespace strata::runtime
