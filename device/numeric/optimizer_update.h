#pragma once
#include "device/step_scalars.h"

namespace strata::device {

// The factors of one step's update: computed once in fp64, and rounded to fp32.
struct UpdateFactors {
  float beta1, rest1;             // 1 - beta1; sgd: the momentum, and 1
  float beta2, rest2;             // 1 - beta2
  float inverse_sqrt_correction;  // adamw: 1 / sqrt(bias_correction2)
  float eps;
  float step;   // learning rate; adamw: divided by bias_correction1
  float decay;  // 1 - learning rate * weight decay; sgd: the weight decay
  float gradient_factor;
};

// `Options` is Optimizer of device/ops/step/optimizer.h, which kernels do not include.
template <typename Options>
constexpr UpdateFactors adamw_factors(const Options& o, const StepScalars& s) {
  const double rate = s.learning_rate;
  return {.beta1 = static_cast<float>(o.beta1),
          .rest1 = static_cast<float>(1.0 - o.beta1),
          .beta2 = static_cast<float>(o.beta2),
          .rest2 = static_cast<float>(1.0 - o.beta2),
          .inverse_sqrt_correction = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(s.bias_correction2))),
          .eps = static_cast<float>(o.eps),
          .step = static_cast<float>(rate / static_cast<double>(s.bias_correction1)),
          .decay = static_cast<float>(1.0 - rate * o.weight_decay),
          .gradient_factor = s.gradient_factor};
}
template <typename Options>
constexpr UpdateFactors lion_factors(const Options& o, const StepScalars& s) {
  const double rate = s.learning_rate;
  return {.beta1 = static_cast<float>(o.beta1),
          .rest1 = static_cast<float>(1.0 - o.beta1),
          .beta2 = static_cast<float>(o.beta2),
          .rest2 = static_cast<float>(1.0 - o.beta2),
          .step = s.learning_rate,
          .decay = static_cast<float>(1.0 - rate * o.weight_decay),
          .gradient_factor = s.gradient_factor};
}
template <typename Options>
constexpr UpdateFactors sgd_factors(const Options& o, const StepScalars& s) {
  return {.beta1 = static_cast<float>(o.momentum),
          .rest1 = 1,
          .step = s.learning_rate,
          .decay = static_cast<float>(o.weight_decay),
          .gradient_factor = s.gradient_factor};
}

namespace rounding {

// Operations on a float with one rounding each. The vectors of kernels have their own versions.
[[gnu::always_inline]] constexpr float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
[[gnu::always_inline]] constexpr float fnma(float a, float b, float c) {
  return __builtin_fmaf(-a, b, c);
}
[[gnu::always_inline]] constexpr float sqrt(float a) {
  return __builtin_sqrtf(a);
}
[[gnu::always_inline]] constexpr float min(float a, float b) {
  return a < b ? a : b;
}
[[gnu::always_inline]] constexpr float max(float a, float b) {
  return a > b ? a : b;
}

// One element's update, for a number type V: a float, or the sixteen floats of a CPU kernel. The order of its roundings
// is the contract: compiled without contraction, it gives the same bits on every device. `g` is first + second, see
// device/ops/step/optimizer.h. `broadcast` makes a V from a float.
template <typename V, typename Broadcast>
[[gnu::always_inline]] constexpr void adamw_update(V g, V& master, V& moment1, V& moment2, const UpdateFactors& f,
                                                   Broadcast broadcast) {
  g = g * broadcast(f.gradient_factor);
  moment1 = fma(broadcast(f.beta1), moment1, broadcast(f.rest1) * g);
  moment2 = fma(broadcast(f.beta2), moment2, (broadcast(f.rest2) * g) * g);
  const V denominator = fma(sqrt(moment2), broadcast(f.inverse_sqrt_correction), broadcast(f.eps));
  master = fnma(broadcast(f.step), moment1 / denominator, master * broadcast(f.decay));
}

// Multiplying by 2^127 twice makes every number except zero at least 1 in magnitude; saturating it gives its sign.
template <typename V, typename Broadcast>
[[gnu::always_inline]] constexpr V sign(V x, Broadcast broadcast) {
  x = (x * broadcast(0x1p127f)) * broadcast(0x1p127f);
  return max(min(x, broadcast(1.0f)), broadcast(-1.0f));
}

template <typename V, typename Broadcast>
[[gnu::always_inline]] constexpr void lion_update(V g, V& master, V& moment1, const UpdateFactors& f,
                                                  Broadcast broadcast) {
  g = g * broadcast(f.gradient_factor);
  const V direction = fma(broadcast(f.beta1), moment1, broadcast(f.rest1) * g);
  moment1 = fma(broadcast(f.beta2), moment1, broadcast(f.rest2) * g);
  master = fnma(broadcast(f.step), sign(direction, broadcast), master * broadcast(f.decay));
}

template <typename V, typename Broadcast>
[[gnu::always_inline]] constexpr void sgd_update(V g, V& master, V& moment1, const UpdateFactors& f,
                                                 Broadcast broadcast) {
  g = fma(broadcast(f.decay), master, g * broadcast(f.gradient_factor));
  moment1 = fma(broadcast(f.beta1), moment1, g);
  master = fnma(broadcast(f.step), moment1, master);
}

}  // namespace rounding
}  // namespace strata::device
