#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "models/flat_range.h"

namespace strata::runtime {

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
  constexpr StateKind kKinds[] = {StateKind::parameters, StateKind::frozen, StateKind::quantised};
  return kKinds[static_cast<std::size_t>(pool)];
}
constexpr models::PoolKind pool_of(StateKind kind) {
  return kind == StateKind::frozen      ? models::PoolKind::frozen
         : kind == StateKind::quantised ? models::PoolKind::quantised
                                        : models::PoolKind::trained;
}

}  // namespace strata::runtime
