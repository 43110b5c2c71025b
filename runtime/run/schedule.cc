#include "runtime/run/schedule.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace strata::runtime {

double learning_rate(const Recipe::Scheduler& scheduler, double peak, std::int64_t max_steps, std::int64_t step) {
  STRATA_CHECK_LE(std::int64_t{1}, step);
  STRATA_CHECK_LE(step, max_steps);
  const auto s = static_cast<double>(step), warmup = static_cast<double>(scheduler.warmup_steps);
  if (step <= scheduler.warmup_steps) return peak * s / warmup;
  const double t = (s - warmup) / (static_cast<double>(max_steps) - warmup), r = scheduler.min_lr_ratio;
  switch (scheduler.name) {
    case Decay::constant:
      return peak;
    case Decay::linear:
      return peak * (1 - (1 - r) * t);
    case Decay::cosine:
      return peak * (r + (1 - r) * (1 + std::cos(std::numbers::pi * t)) / 2);
    case Decay::wsd:
      return t <= 0.8 ? peak : peak * (1 - (1 - r) * (5 * t - 4));
  }
  return peak;
}

}  // namespace strata::runtime
