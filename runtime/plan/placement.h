#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/mesh.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What a planned buffer holds; memory is reported by kind.
enum class Kind : std::uint8_t { parameters, gradients, optimizer, activations, workspace, staging };
inline constexpr std::array<std::string_view, 6> kKindNames = {"parameters",  "gradients", "optimizer",
                                                               "activations", "workspace", "staging"};
inline constexpr std::size_t kKinds = kKindNames.size();

inline constexpr std::array<std::string_view, 3> kTierNames = {"device", "host", "nvme"};
inline constexpr std::size_t kTiers = kTierNames.size();

// Where one kind of state lives, and over which ranks it is cut into shards.
struct StatePlacement {
  Axis over;  // none: every rank holds all of it
  Tier tier;
  int group = 0;  // neighbouring ranks that hold all of it together; 0: all ranks

  bool sharded() const { return over != Axis::none; }
  // On a mesh; a rank by itself holds everything.
  int pieces(const Mesh& mesh) const { return !sharded() ? 1 : group == 0 ? mesh.data() : group; }
};

// ZeRO as a table (Rajbhandari et al. 2020). Nothing else in the program knows a stage.
struct Placement {
  StatePlacement parameters, gradients, optimizer;
  Tier activations;

  // Of the fp32 sums of gradients: where these are whole, a rank still sums no more than it updates.
  const StatePlacement& sums() const { return gradients.sharded() ? gradients : optimizer; }
};

// The row that zero.stage names, with the tiers and groups of zero.*. `node`: the ranks of a node (ranks_per_node), for
// groups that are one.
Placement placement_of(const Recipe::Zero& zero, int node = 0);

// The ranks of a mesh, in the groups that a placement has.
Mesh mesh_of(const Placement& placement, Mesh mesh);
// Throws Error{usage} if the groups of zero.* do not go into each other and into so many ranks, or are to be a node's
// if nodes are not alike. `nodes`: the node of each rank; empty: all are on one.
void require_groups(const Recipe::Zero& zero, int ranks, const std::vector<int>& nodes = {});
// Of groups that a stage has no use for, a sentence each.
std::vector<std::string> notes_of_groups(const Recipe::Zero& zero);

}  // namespace strata::runtime
