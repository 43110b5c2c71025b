#pragma once
#include <array>
#include <cstdint>
#include <string_view>

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

  bool sharded() const { return over != Axis::none; }
};

// ZeRO as a table (Rajbhandari et al. 2020). Nothing else in the program knows a stage.
struct Placement {
  StatePlacement parameters, gradients, optimizer;
  Tier activations;
};

// The row that zero.stage names, with the tiers of zero.*.
Placement placement_of(const Recipe::Zero& zero);

}  // namespace strata::runtime
