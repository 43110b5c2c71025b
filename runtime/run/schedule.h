#pragma once
#include <cmath>
#include <cstdint>

#include "runtime/checkpoint/manifest.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The learning rate of step `step` in 1 .. max_steps: peak * step / warmup during warmup, then scheduler.name's decay
// to peak * min_lr_ratio at max_steps (docs/guide.md, "What a step means").
double learning_rate(const Recipe::Scheduler& scheduler, double peak, std::int64_t max_steps, std::int64_t step);

// The loss scale of fp16 training, as in torch.amp.GradScaler: halved after a step with a non-finite gradient, doubled
// after growth_interval finite steps in a row. Off in fp32 and bf16: the scale is 1 and update does nothing.
class LossScaler {
 public:
  using State = LossScale;

  LossScaler(bool enabled, const Recipe::Fp16& fp16)
      : enabled_(enabled),
        growth_interval_(fp16.growth_interval),
        state_{.scale = enabled ? static_cast<float>(fp16.initial_scale) : 1.0f, .growth_tracker = 0} {}

  bool enabled() const { return enabled_; }
  // The scale of the next step.
  float scale() const { return state_.scale; }
  // Call it after a step. non_finite: some rank's gradients were not finite.
  void update(bool non_finite) {
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
  // True if the scale was halved until its inverse is no longer finite: no scale would help.
  bool exhausted() const { return !std::isnormal(state_.scale); }

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  bool enabled_;
  std::int64_t growth_interval_;
  State state_;
};

}  // namespace strata::runtime
