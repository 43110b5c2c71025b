#pragma once
#include <cstdint>

#include "runtime/checkpoint/progress.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The loss scale of fp16 training, as torch.amp.GradScaler: halved after a step with a non-finite gradient, doubled
// after growth_interval steps in a row without one. Off (scale 1, update does nothing) in fp32 and bf16.
class LossScaler {
 public:
  using State = LossScale;

  LossScaler(bool enabled, const Recipe::Fp16& fp16);

  bool enabled() const { return enabled_; }
  // The scale of the step about to run.
  float scale() const { return state_.scale; }
  // After the step whose gradients were, anywhere on any rank, not finite or all finite.
  void update(bool non_finite);
  // Halved so often that its inverse is no number any more: no scale would help.
  bool exhausted() const;

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  bool enabled_;
  std::int64_t growth_interval_;
  State state_;
};

}  // namespace strata::runtime
