#include "runtime/run/loss_scaler.h"

#include <cmath>

namespace strata::runtime {

LossScaler::LossScaler(bool enabled, const Recipe::Fp16& fp16)
    : enabled_(enabled),
      growth_interval_(fp16.growth_interval),
      state_{.scale = enabled ? static_cast<float>(fp16.initial_scale) : 1.0f, .growth_tracker = 0} {}

void LossScaler::update(bool non_finite) {
  if (!enabled_) return;
  if (non_finite) {
    state_ = {.scale = state_.scale * 0.5f, .growth_tracker = 0};
    return;
  }
  if (++state_.growth_tracker < growth_interval_) return;
  state_.growth_tracker = 0;
  const float grown = state_.scale * 2.0f;
  if (std::isfinite(grown)) state_.scale = grown;
}

bool LossScaler::exhausted() const {
  return !std::isnormal(state_.scale);
}

}  // namespace strata::runtime
