#pragma once
#include <cstddef>
#include <cstdint>

#include "comm/group.h"
#include "runtime/plan/task_kind.h"

namespace strata::runtime {

struct StepPlan;

// The groups of ranks among which state is exchanged, one per kind of exchange.
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

// The group that `rank` is in, in the order of its members' pieces. A group of one is replaced by all ranks in their
// order, as nothing is exchanged then.
comm::Group group_of(const StepPlan& plan, Peers peers, int rank);

// The group of a task with a collective. Collectives that exchange no unit's state run among all ranks.
Peers peers_of(TaskKind kind);

}  // namespace strata::runtime
