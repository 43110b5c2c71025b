#include "runtime/plan/layout/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/quantity.h"

namespace strata::runtime {

Placement placement_of(const Recipe::Zero& zero, int node) {
  struct Row {
    Axis parameters, gradients, optimizer;
  };
  constexpr std::array<Row, 4> kStages = {{
      {Axis::none, Axis::none, Axis::none},
      {Axis::none, Axis::none, Axis::data},
      {Axis::none, Axis::data, Axis::data},
      {Axis::data, Axis::data, Axis::data},
  }};
  const Row& row = kStages.at(static_cast<std::size_t>(zero.stage));
  const auto group = [node](std::int64_t own, int next) {
    return own == kAllRanks ? next : own == kRanksOfANode ? node : static_cast<int>(own);
  };
  const int optimizer = group(zero.optimizer_group, 0), gradients = group(zero.gradients_group, optimizer);
  return {{row.parameters, zero.parameters, group(zero.parameters_group, gradients)},
          {row.gradients, zero.gradients, gradients},
          {row.optimizer, zero.optimizer, optimizer},
          zero.activations};
}

Mesh mesh_of(const Placement& placement, Mesh mesh, int reduce_group) {
  mesh.groups.clear();
  for (const StatePlacement& state : {placement.parameters, placement.gradients, placement.optimizer})
    if (const int pieces = state.pieces(mesh); pieces > 1 && pieces < mesh.data()) mesh.groups.push_back(pieces);
  const int node = mesh.data_per_node();
  const auto nests = [&](int group) { return group % node == 0 || node % group == 0; };
  if (reduce_group > 1 && reduce_group == node && node < mesh.data() && std::ranges::all_of(mesh.groups, nests))
    mesh.groups.push_back(node);
  std::ranges::sort(mesh.groups);
  mesh.groups.erase(std::ranges::unique(mesh.groups).begin(), mesh.groups.end());
  return mesh;
}

namespace {

std::string divisors_text(int of) {
  std::vector<int> all;
  for (int n = 1; n < of; ++n)
    if (of % n == 0) all.push_back(n);
  return all.empty() ? "\"all\"" : fmt::format("{} or \"all\"", fmt::join(all, ", "));
}

// "2, 2 and 1 ranks".
std::string sizes_text(const std::vector<int>& nodes) {
  std::map<int, int> sizes;
  for (const int node : nodes) ++sizes[node];
  std::string text;
  for (const auto& [node, ranks] : sizes)
    text += fmt::format("{}{}", text.empty() ? "" : node == sizes.rbegin()->first ? " and " : ", ", ranks);
  return text + " ranks";
}

// The ranks of a node must form whole data ranks of each of its stages, and the same number on every node.
void require_equal_nodes(std::string_view key, const Mesh& mesh, const std::vector<int>& nodes) {
  if (nodes.empty() || mesh.data_per_node() > 0) return;
  if (!std::ranges::is_sorted(nodes))
    fail(Exit::usage,
         "{} = \"node\" needs the ranks of each node to be consecutive, but they alternate between nodes: start "
         "them node by node (mpirun --map-by slot, srun --distribution=block)",
         key);
  if (mesh.node == 0)
    fail(Exit::usage,
         "{} = \"node\" needs the same number of ranks on every node, but these have {}: start the same number on "
         "each, or give \"all\"",
         key, sizes_text(nodes));
  if (mesh.node % mesh.tensor != 0)
    fail(
        Exit::usage,
        "{} = \"node\" needs complete layers on every node, but parallel.tensor = {} does not divide the {} ranks of a "
        "node: start a multiple of {} on each, or give \"all\"",
        key, mesh.tensor, mesh.node, mesh.tensor);
  fail(Exit::usage,
       "{} = \"node\" needs the data ranks of a pipeline stage to divide evenly over nodes, but {} do not divide into "
       "nodes of {}: change the number of nodes or the ranks per node, or give a number of ranks or \"all\"",
       key, mesh.data(), mesh.node / mesh.tensor);
}

}  // namespace

// Groups of state that is not sharded have no effect; notes_of_groups() reports them.
void require_groups(const Recipe::Zero& zero, const Mesh& mesh, const std::vector<int>& nodes) {
  const int ranks = mesh.data();
  const std::string_view noun = ranks == mesh.world ? "rank" : "data rank";
  const Placement placement = placement_of(zero, mesh.data_per_node());
  const auto look = [&](const StatePlacement& state, std::int64_t group, std::string_view key) {
    if (state.sharded() && group == kRanksOfANode) require_equal_nodes(key, mesh, nodes);
  };
  look(placement.optimizer, zero.optimizer_group, "zero.optimizer_group");
  look(placement.gradients, zero.gradients_group, "zero.gradients_group");
  look(placement.parameters, zero.parameters_group, "zero.parameters_group");
  const auto members = [&](const StatePlacement& state, int next) {
    return !state.sharded() ? next : state.group == 0 ? ranks : state.group;
  };
  const int optimizer = members(placement.optimizer, ranks), gradients = members(placement.gradients, optimizer);
  const int parameters = members(placement.parameters, gradients);
  const auto count = [&](int n) { return counted(n, noun); };
  const auto holders = [&](int n) { return count(n) + (n == 1 ? " that holds" : " that hold"); };
  if (ranks % optimizer != 0)
    fail(Exit::usage, "zero.optimizer_group = {} does not divide the run's {}: give {}", optimizer, count(ranks),
         divisors_text(ranks));
  if (optimizer % gradients != 0)
    fail(Exit::usage, "zero.gradients_group = {} does not divide the {} the optimizer's state: give {}", gradients,
         holders(optimizer), divisors_text(optimizer));
  if (gradients % parameters != 0)
    fail(Exit::usage, "zero.parameters_group = {} does not divide the {} the {}: give {}", parameters,
         holders(gradients), gradients == optimizer ? "optimizer's state" : "gradients", divisors_text(gradients));
}

std::vector<std::string> notes_of_groups(const Recipe::Zero& zero) {
  const Placement placement = placement_of(zero);
  std::vector<std::string> notes;
  const auto look = [&](const StatePlacement& state, std::int64_t given, std::string_view key, int stage) {
    if (given != kAllRanks && !state.sharded())
      notes.push_back(
          fmt::format("{} has no effect at zero.stage = {}: it applies from stage {} on", key, zero.stage, stage));
  };
  look(placement.parameters, zero.parameters_group, "zero.parameters_group", 3);
  look(placement.gradients, zero.gradients_group, "zero.gradients_group", 2);
  look(placement.optimizer, zero.optimizer_group, "zero.optimizer_group", 1);
  return notes;
}

}  // namespace strata::runtime
