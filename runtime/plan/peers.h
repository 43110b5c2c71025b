#pragma once
#include <cstdint>

#include "comm/group.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// With whom a rank exchanges state of a kind: each is a group of ranks of its own.
enum class Peers : std::uint8_t {
  parameters,  // among those that hold a unit's parameters together
  updates,     // among those that update together what each of them holds
  gradients,   // among all
  sums,        // among those that hold the same piece of the sums
};
inline constexpr std::size_t kPeers = 4;

// These ranks, in the order of the pieces. For a rank that would be alone, they are all ranks in their order: nothing
// is exchanged then.
comm::Group group_of(const StepPlan& plan, Peers peers, int rank);

// Of a task with a collective; those about no state of a unit are among all ranks, as gradients are.
Peers peers_of(TaskKind kind);

}  // namespace strata::runtime
