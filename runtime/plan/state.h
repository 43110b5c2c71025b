#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace strata::runtime {

// The state of a parameter that lives from step to step. A checkpoint holds kStateKinds, of what is trained; parameters
// in the compute dtype follow from the master, and in fp32 are the master. What is frozen has nothing else: a
// checkpoint holds it under the master's name.
enum class StateKind : std::uint8_t { master, moment1, moment2, parameters, frozen };
inline constexpr std::array<StateKind, 3> kStateKinds = {StateKind::master, StateKind::moment1, StateKind::moment2};
inline constexpr std::array<std::string_view, 3> kStateNames = {"master", "moment1", "moment2"};

constexpr std::string_view name_of(StateKind kind) {
  return kStateNames[kind == StateKind::frozen ? 0 : static_cast<std::size_t>(kind)];
}

}  // namespace strata::runtime
