#pragma once
#include <cstddef>
#include <cstdint>

#include "device/ops/step/consensus.h"
#include "device/step_scalars.h"

namespace strata::runtime {

// Three small device buffers. They are separate because different lanes write them.

// Role::state: written by the host before the step and by the consensus; read by every lane.
struct StepState {
  device::StepScalars scalars;
  std::uint64_t requests;
  device::StepMessage message;
  device::StepResult result;
};

// Role::losses: written by the compute lane. One std::uint64_t per unit follows it and counts non-finite outputs.
struct LossState {
  device::ExactSum loss;
  std::uint64_t* nonfinite() { return reinterpret_cast<std::uint64_t*>(this + 1); }
  static std::size_t bytes(std::size_t units) { return sizeof(LossState) + units * sizeof(std::uint64_t); }
};

// Role::squares: written by the reduce lane.
struct SquareState {
  device::ExactSum squares;
};

}  // namespace strata::runtime
