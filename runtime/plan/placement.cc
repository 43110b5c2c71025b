#include "runtime/plan/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/counted.h"
#include "base/error.h"

namespace strata::runtime {

Placement placement_of(const Recipe::Zero& zero) {
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
  const auto group = [](std::int64_t own, int next) { return own == kAllRanks ? next : static_cast<int>(own); };
  const int optimizer = group(zero.optimizer_group, 0), gradients = group(zero.gradients_group, optimizer);
  return {{row.parameters, zero.parameters, group(zero.parameters_group, gradients)},
          {row.gradients, zero.gradients, gradients},
          {row.optimizer, zero.optimizer, optimizer},
          zero.activations};
}

Mesh mesh_of(const Placement& placement, int ranks) {
  Mesh mesh{ranks};
  for (const StatePlacement& state : {placement.parameters, placement.gradients, placement.optimizer})
    if (const int pieces = state.pieces(mesh); pieces > 1 && pieces < mesh.data()) mesh.groups.push_back(pieces);
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

}  // namespace

// Whatever the stage, so that a recipe that is taken is taken at every stage.
void require_groups(const Recipe::Zero& zero, int ranks) {
  const Placement placement = placement_of(zero);
  const auto members = [&](const StatePlacement& state) { return state.group == 0 ? ranks : state.group; };
  const auto count = [](int n) { return counted(static_cast<std::uint64_t>(n), "rank"); };
  const int optimizer = members(placement.optimizer), gradients = members(placement.gradients);
  const int parameters = members(placement.parameters);
  if (ranks % optimizer != 0)
    fail(Exit::usage, "zero.optimizer_group = {} does not divide the run's {}: give {}", optimizer, count(ranks),
         divisors_text(ranks));
  if (gradients != optimizer)
    fail(Exit::usage,
         "zero.gradients_group = {} with optimizer state over {} is not supported: give zero.optimizer_group the same "
         "number, or leave out zero.gradients_group",
         gradients, count(optimizer));
  if (optimizer % parameters != 0)
    fail(Exit::usage, "zero.parameters_group = {} does not divide the {} that hold the optimizer's state: give {}",
         parameters, count(optimizer), divisors_text(optimizer));
}

std::vector<std::string> notes_of_groups(const Recipe::Zero& zero) {
  const Placement placement = placement_of(zero);
  std::vector<std::string> notes;
  const auto look = [&](const StatePlacement& state, std::int64_t given, std::string_view key, int stage) {
    if (given != kAllRanks && !state.sharded())
      notes.push_back(
          fmt::format("{} has no effect at zero.stage = {}: it is for stages from {} on", key, zero.stage, stage));
  };
  look(placement.parameters, zero.parameters_group, "zero.parameters_group", 3);
  look(placement.gradients, zero.gradients_group, "zero.gradients_group", 2);
  look(placement.optimizer, zero.optimizer_group, "zero.optimizer_group", 1);
  return notes;
}

}  // namespace strata::runtime
