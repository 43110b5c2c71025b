#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/flat_range.h"
#include "runtime/plan/layout/mesh.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The kinds of contents of planned buffers. Memory is reported by kind.
enum class Kind : std::uint8_t { parameters, gradients, optimizer, activations, workspace, staging };
inline constexpr std::array<std::string_view, 6> kKindNames = {"parameters",  "gradients", "optimizer",
                                                               "activations", "workspace", "staging"};
inline constexpr std::size_t kKinds = kKindNames.size();

inline constexpr std::array<std::string_view, 3> kTierNames = {"device", "host", "nvme"};
inline constexpr std::size_t kTiers = kTierNames.size();

// The tier in which one kind of state lives, and the ranks over which it is sharded.
struct StatePlacement {
  Axis over;  // none: every rank holds all of it
  Tier tier;
  int group = 0;  // consecutive ranks that together hold all of it; 0: all ranks

  bool sharded() const { return over != Axis::none; }
  // The number of pieces on a mesh; 1 on a mesh of one rank.
  int pieces(const Mesh& mesh) const { return !sharded() ? 1 : group == 0 ? mesh.data() : group; }
};

// A row of ZeRO's table (Rajbhandari et al. 2020). No other part of the program uses stages.
struct Placement {
  StatePlacement parameters, gradients, optimizer;
  Tier activations;

  // The placement of the fp32 gradient sums. If gradients are not sharded, a rank still sums only the elements that it
  // updates.
  const StatePlacement& sums() const { return gradients.sharded() ? gradients : optimizer; }
};

// The row that zero.stage names, with the tiers and groups of zero.*. `node`: ranks per node (ranks_per_node), the size
// of groups given as "node".
Placement placement_of(const Recipe::Zero& zero, int node = 0);

// The mesh with the groups that the placement needs, and with the node's group if each run of micro-batches
// (training.reduce_group) belongs to one node.
Mesh mesh_of(const Placement& placement, Mesh mesh, int reduce_group = 1);
// Throws Error{usage} if the groups of sharded state do not divide each other and the number of data ranks, or if one
// is "node" and nodes have unequal parts of a stage. `nodes`: the node of each rank of the mesh; empty: all are on one.
void require_groups(const Recipe::Zero& zero, const Mesh& mesh, const std::vector<int>& nodes = {});
// One sentence per group of zero.* that has no effect at the recipe's stage.
std::vector<std::string> notes_of_groups(const Recipe::Zero& zero);

// The state of a parameter that lives from step to step. For trained parameters a checkpoint holds kStateKinds: the
// parameters in the compute dtype follow from the master, and in fp32 they are the master. Frozen parameters have no
// other state; a checkpoint holds them under the master's name.
enum class StateKind : std::uint8_t { master, moment1, moment2, parameters, frozen, quantised };
inline constexpr std::array<StateKind, 3> kStateKinds = {StateKind::master, StateKind::moment1, StateKind::moment2};
inline constexpr std::array<std::string_view, 3> kStateNames = {"master", "moment1", "moment2"};

constexpr bool is_frozen(StateKind kind) {
  return kind == StateKind::frozen || kind == StateKind::quantised;
}
constexpr std::string_view name_of(StateKind kind) {
  return kStateNames[is_frozen(kind) ? 0 : static_cast<std::size_t>(kind)];
}

// The kind of state that a pool's parameters are, and the pool that a kind of state belongs to.
constexpr StateKind parameters_in(models::PoolKind pool) {
  constexpr StateKind kOfPool[] = {StateKind::parameters, StateKind::frozen, StateKind::quantised};
  return kOfPool[static_cast<std::size_t>(pool)];
}
constexpr models::PoolKind pool_of(StateKind kind) {
  return kind == StateKind::frozen      ? models::PoolKind::frozen
         : kind == StateKind::quantised ? models::PoolKind::quantised
                                        : models::PoolKind::trained;
}

}  // namespace strata::runtime
