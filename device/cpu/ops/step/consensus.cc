#include "device/ops/step/consensus.h"

#include <algorithm>
#include <cmath>

#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {

void pack_message(Lane& lane, const ExactSum* squares, const ExactSum* loss, const std::uint64_t* requests,
                  StepMessage* message) {
  submit(lane, [=](Team&) { *message = {*squares, *loss, *requests}; });
}

void resolve_step(Lane& lane, const StepMessage* messages, std::size_t ranks, StepScalars* scalars,
                  StepResult* result) {
  submit(lane, [=](Team&) {
    StepMessage all = messages[0];
    for (std::size_t r = 1; r < ranks; ++r) {
      all.squares.merge(messages[r].squares);
      all.loss.merge(messages[r].loss);
      all.requests += messages[r].requests;
    }
    const double norm = std::sqrt(all.squares.round()) * static_cast<double>(scalars->unscale);
    const double most = static_cast<double>(scalars->max_grad_norm);
    const double clip = most > 0 ? std::min(1.0, most / (norm + 1e-6)) : 1.0;
    scalars->gradient_factor = scalars->unscale * static_cast<float>(clip);
    const double loss = all.loss.round();
    scalars->skip = std::isfinite(norm) && std::isfinite(loss) ? 0 : 1;
    *result = {loss, norm, all.requests};
  });
}

}  // namespace strata::device::cpu
