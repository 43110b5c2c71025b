#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata::runtime {

enum class TaskKind : std::uint8_t {
  gather,          // all-gather of a unit's parameter shards into a buffer
  unpack,          // converts a unit's quantised parameters to the compute dtype
  forward,         // a unit's forward of one micro-batch
  recompute,       // the same again during backward, for the activations it saves
  loss,            // forward, loss and backward of the last unit, for one micro-batch
  backward,        // a unit's backward of one micro-batch
  exchange,        // adds the partial sums of the ranks that share a layer
  gather_rows,     // all-gather of activations; each of these ranks has some of the rows
  take_rows,       // copies this rank's rows of an activation
  send,            // sends activations or a gradient of them to the next or previous pipeline stage, or parameters that
                   // stages share, or sums of their gradients, to another
  receive,         // receives the data of a neighbouring stage's send
  accumulate,      // `fast`: adds a gradient to the local fp32 sum
  round,           // `fast`: rounds the local fp32 sum to the wire dtype
  node_sum,        // all-to-all of a gradient within a node, whose pieces are summed and rounded as one run
  reduce,          // all-to-all of a gradient, whose pieces are added to the fp32 shard in rank order
  combine,         // adds a unit's sum for shared parameters to the sum of the unit that holds them
  norm,            // sum of squares of this rank's part of the gradient
  gather_sums,     // all-gather of fp32 gradient sums, if a rank needs more of them than its own shard
  consensus,       // exchange of all ranks' norm, loss and requests; decides on clipping and skipping
  update,          // optimizer step of this rank's part, or of a chunk of it
  gather_updated,  // all-gather of updated parameters, if a rank updates only a part of those it holds
  upload,          // host to device
  download,        // device to host
  read,            // NVMe to host
  write,           // host to NVMe
  save,            // reads a unit's state for a checkpoint
  publish,         // makes the checkpoint durable
  copy_scalars,    // keeps the previous step's scalars for the update that it left
  host_write,      // the host writes the step's inputs: batch, scalars, counters at zero
  host_read,       // the host reads the results; from here to the next host_write the batch belongs to the caller
};

// The collective operation of a task. No rank completes the task before all of its group have reached it.
enum class Collective : std::uint8_t { none, all_gather, all_to_all, exchange };

// Says which end of a message between pipeline stages a task is. A receiver waits for its sender.
enum class MessageEnd : std::uint8_t { none, sender, receiver };

// The groups of ranks that exchange data, one per kind of exchange. group_of() (peers.h) has their members.
enum class Peers : std::uint8_t {
  parameters,  // ranks that together hold a unit's parameters
  updates,     // ranks that hold the same parameters; each updates a part
  gradients,   // ranks that receive pieces of each other's gradients: all, or one per node if nodes sum their own first
  sums,        // ranks that hold the same piece of the gradient sums
  node,        // ranks of one node, if they sum their gradients before these cross nodes
  tensor,      // ranks that share each layer
  stages,      // ranks of all pipeline stages that take the same micro-batches
  all,         // all ranks
};
inline constexpr std::size_t kPeers = 8;

// The measured speed of a machine (forecast/machine.h) at which a task's memory traffic runs.
enum class Traffic : std::uint8_t { blocks, loss, optimizer, sums, norm };

// The properties of a kind of task that the rest of the program may use. Its operands and work are in its struct in
// runtime/tasks.
struct TaskTraits {
  TaskKind kind;
  std::string_view name;  // in traces and messages, where gather_updated is "spread" and copy_scalars is "carry"
  Traffic traffic = Traffic::blocks;
  Collective collective = Collective::none;
  std::optional<Peers> peers = {};  // the group of its collective or message; nullopt: it needs no other rank
  bool boundary = false;            // belongs to the step boundary, and to no unit
  MessageEnd message = MessageEnd::none;
};

// The properties of each kind, in the order of the enumeration. execute/task_table.cc has the functions that run them.
inline constexpr auto kTaskTraits = std::to_array<TaskTraits>({
    {TaskKind::gather, "gather", Traffic::blocks, Collective::all_gather, Peers::parameters},
    {TaskKind::unpack, "unpack"},
    {TaskKind::forward, "forward"},
    {TaskKind::recompute, "recompute"},
    {TaskKind::loss, "loss", Traffic::loss},
    {TaskKind::backward, "backward"},
    {TaskKind::exchange, "exchange", Traffic::sums, Collective::all_to_all, Peers::tensor},
    {TaskKind::gather_rows, "gather rows", Traffic::sums, Collective::all_gather, Peers::tensor},
    {TaskKind::take_rows, "take rows"},
    {TaskKind::send, "send", Traffic::blocks, Collective::none, Peers::stages, false, MessageEnd::sender},
    {TaskKind::receive, "receive", Traffic::blocks, Collective::none, Peers::stages, false, MessageEnd::receiver},
    {TaskKind::accumulate, "accumulate", Traffic::sums},
    {TaskKind::round, "round", Traffic::sums},
    {TaskKind::node_sum, "node sum", Traffic::sums, Collective::all_to_all, Peers::node},
    {TaskKind::reduce, "reduce", Traffic::sums, Collective::all_to_all, Peers::gradients},
    {TaskKind::combine, "combine", Traffic::sums},
    {TaskKind::norm, "norm", Traffic::norm},
    {TaskKind::gather_sums, "gather sums", Traffic::blocks, Collective::all_gather, Peers::sums},
    {TaskKind::consensus, "consensus", Traffic::blocks, Collective::exchange, Peers::all, true},
    {TaskKind::update, "update", Traffic::optimizer},
    {TaskKind::gather_updated, "spread", Traffic::blocks, Collective::all_gather, Peers::updates},
    {TaskKind::upload, "upload"},
    {TaskKind::download, "download"},
    {TaskKind::read, "read"},
    {TaskKind::write, "write"},
    {TaskKind::save, "save"},
    {TaskKind::publish, "publish", Traffic::blocks, Collective::exchange, Peers::all, true},
    {TaskKind::copy_scalars, "carry", Traffic::blocks, Collective::none, {}, true},
    {TaskKind::host_write, "host write", Traffic::blocks, Collective::none, {}, true},
    {TaskKind::host_read, "host read", Traffic::blocks, Collective::none, {}, true},
});
inline constexpr std::size_t kTaskKinds = kTaskTraits.size();

constexpr const TaskTraits& traits_of(TaskKind kind) {
  return kTaskTraits[static_cast<std::size_t>(kind)];
}
constexpr bool sends_message(TaskKind kind) {
  return traits_of(kind).message == MessageEnd::sender;
}
constexpr bool receives_message(TaskKind kind) {
  return traits_of(kind).message == MessageEnd::receiver;
}
constexpr bool is_message(TaskKind kind) {
  return sends_message(kind) || receives_message(kind);
}
static_assert(
    [] {
      for (std::size_t row = 0; row < kTaskKinds; ++row)
        if (static_cast<std::size_t>(kTaskTraits[row].kind) != row) return false;
      return true;
    }(),
    "a row of kTaskTraits is not in its kind's place");
static_assert(
    [] {
      for (const TaskTraits& row : kTaskTraits)
        if (row.peers.has_value() != (row.collective != Collective::none || row.message != MessageEnd::none))
          return false;
      return true;
    }(),
    "a row of kTaskTraits has peers without a collective or a message, or one of these without peers");

}  // namespace strata::runtime
