#include "device/ops/step/consensus.h"

#include "device/operations.h"

namespace strata::device {

void pack_message(Lane& lane, const ExactSum* squares, const ExactSum* loss, const std::uint64_t* requests,
                  StepMessage* message) {
  lane.operations().pack_message(lane, squares, loss, requests, message);
}

void resolve_step(Lane& lane, const StepMessage* messages, std::size_t ranks, StepScalars* scalars,
                  StepResult* result) {
  lane.operations().resolve_step(lane, messages, ranks, scalars, result);
}

}  // namespace strata::device
