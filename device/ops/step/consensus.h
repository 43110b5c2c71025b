#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/numeric/exact_sum.h"
#include "device/step_scalars.h"

namespace strata::device {

// Each rank's contribution to a step's consensus; ranks exchange it as bytes.
struct StepMessage {
  ExactSum squares;  // sum over this rank's part of the gradient, still multiplied by the loss scale
  ExactSum loss;     // summed over the labels of this rank's micro-batches
  // The requests that this rank received: a stop, a checkpoint, an immediate stop. Each has its own bits, so the sum
  // over the ranks contains all of them.
  std::uint64_t requests = 0;
};

// The result that the ranks agreed on, for the host to read after the step.
struct StepResult {
  double loss_sum = 0;       // over all labels of the step
  double gradient_norm = 0;  // unscaled, before clipping; not finite if a gradient is not
  std::uint64_t requests = 0;
};

// *message = {*squares, *loss, *requests}, read when the work runs.
void pack_message(Lane&, const ExactSum* squares, const ExactSum* loss, const std::uint64_t* requests,
                  StepMessage* message);

// Merges `ranks` messages (exactly, so in any order) and decides for the step: sets scalars->gradient_factor to unscale
// * min(1, max_grad_norm / (norm + 1e-6)), and scalars->skip if the norm or the loss is not finite.
void resolve_step(Lane&, const StepMessage* messages, std::size_t ranks, StepScalars* scalars, StepResult* result);

}  // namespace strata::device
