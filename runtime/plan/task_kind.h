#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::runtime {

enum class TaskKind : std::uint8_t {
  gather,       // all-gather of a unit's parameter shards into a buffer
  unpack,       // converts a unit's quantised parameters to the compute dtype
  forward,      // a unit's forward of one micro-batch
  recompute,    // the same again during backward, for the activations it saves
  loss,         // forward, loss and backward of the last unit, for one micro-batch
  backward,     // a unit's backward of one micro-batch
  exchange,     // adds the partial sums of the ranks that share a layer
  gather_rows,  // all-gather of activations; each of these ranks has some of the rows
  take_rows,    // copies this rank's rows of an activation
  send,         // sends activations or a gradient of them to the next or previous pipeline stage, or parameters that
                // stages share, or sums of their gradients, to another
  receive,      // receives the data of a neighbouring stage's send
  accumulate,   // `fast`: adds a gradient to the local fp32 sum
  round,        // `fast`: rounds the local fp32 sum to the wire dtype
  node_sum,     // all-to-all of a gradient within a node, whose pieces are summed and rounded as one run
  reduce,       // all-to-all of a gradient, whose pieces are added to the fp32 shard in rank order
  combine,      // adds a unit's sum for shared parameters to the sum of the unit that holds them
  norm,         // sum of squares of this rank's part of the gradient
  gather_sums,  // all-gather of fp32 gradient sums, if a rank needs more of them than its own shard
  consensus,    // exchange of all ranks' norm, loss and requests; decides on clipping and skipping
  update,       // optimizer step of this rank's part, or of a chunk of it
  spread,       // all-gather of updated parameters, if a rank updates only a part of those it holds
  upload,       // host to device
  download,     // device to host
  read,         // NVMe to host
  write,        // host to NVMe
  save,         // reads a unit's state for a checkpoint
  publish,      // makes the checkpoint durable
  carry,        // keeps the previous step's scalars for the update that it left
  host_write,   // the host writes the step's inputs: batch, scalars, counters at zero
  host_read,    // the host reads the results; from here to the next host_write the batch belongs to the caller
};

// The collective operation of a task. No rank completes the task before all have reached it.
enum class Collective : std::uint8_t { none, all_gather, all_to_all, exchange };

// Which of a machine's measured speeds (forecast/machine.h) a task's memory traffic runs at.
enum class Traffic : std::uint8_t { blocks, loss, optimizer, sums, norm };

// The properties of a kind of task that the rest of the program may use. Its operands and work are in its struct in
// runtime/tasks.
struct TaskTraits {
  TaskKind kind;
  std::string_view name;
  Collective collective = Collective::none;
  Traffic traffic = Traffic::blocks;
  bool boundary = false;  // belongs to the step boundary, and to no unit
};

// The only list of kinds, in the order of the enumeration. execute/task_table.cc has the functions that run them.
inline constexpr auto kTaskTraits = std::to_array<TaskTraits>({
    {TaskKind::gather, "gather", Collective::all_gather},
    {TaskKind::unpack, "unpack"},
    {TaskKind::forward, "forward"},
    {TaskKind::recompute, "recompute"},
    {TaskKind::loss, "loss", Collective::none, Traffic::loss},
    {TaskKind::backward, "backward"},
    {TaskKind::exchange, "exchange", Collective::all_to_all, Traffic::sums},
    {TaskKind::gather_rows, "gather rows", Collective::all_gather, Traffic::sums},
    {TaskKind::take_rows, "take rows"},
    {TaskKind::send, "send"},
    {TaskKind::receive, "receive"},
    {TaskKind::accumulate, "accumulate", Collective::none, Traffic::sums},
    {TaskKind::round, "round", Collective::none, Traffic::sums},
    {TaskKind::node_sum, "node sum", Collective::all_to_all, Traffic::sums},
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
