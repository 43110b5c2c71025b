#pragma once
#include "device/step_scalars.h"

namespace strata::device {

// What one step's update multiplies with: worked out once, in fp64, and rounded to fp32.
struct AdamWFactors {
  float beta1, rest1;             // 1 - beta1
  float beta2, rest2;             // 1 - beta2
  float inverse_sqrt_correction;  // 1 / sqrt(bias_correction2)
  float eps;
  float step;   // learning rate / bias_correction1
  float decay;  // 1 - learning rate * weight decay
  float gradient_factor;
};

// `Rule` is AdamW of device/ops/adamw.h, which kernels do not include.
template <typename Rule>
constexpr AdamWFactors adamw_factors(const Rule& rule, const StepScalars& s) {
  const double rate = s.learning_rate;
  return {.beta1 = static_cast<float>(rule.beta1),
          .rest1 = static_cast<float>(1.0 - rule.beta1),
          .beta2 = static_cast<float>(rule.beta2),
          .rest2 = static_cast<float>(1.0 - rule.beta2),
          .inverse_sqrt_correction = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(s.bias_correction2))),
          .eps = static_cast<float>(rule.eps),
          .step = static_cast<float>(rate / static_cast<double>(s.bias_correction1)),
          .decay = static_cast<float>(1.0 - rate * rule.weight_decay),
          .gradient_factor = s.gradient_factor};
}

namespace rounding {

// Operations of one rounding each, on a float; a kernel's vectors bring their own.
[[gnu::always_inline]] inline float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
[[gnu::always_inline]] inline float fnma(float a, float b, float c) {
  return __builtin_fmaf(-a, b, c);
}
[[gnu::always_inline]] inline float sqrt(float a) {
  return __builtin_sqrtf(a);
}

// One element's update, for a number type V: a float, or the sixteen of a CPU kernel. The order of its roundings is
// the contract; compiled without contraction it gives the same bits on every device. `g` is first + second, see
// device/ops/adamw.h; `broadcast` makes a V of a float.
template <typename V, typename Broadcast>
[[gnu::always_inline]] inline void adamw_update(V g, V& master, V& moment1, V& moment2, const AdamWFactors& f,
                                                Broadcast broadcast) {
  g = g * broadcast(f.gradient_factor);
  moment1 = fma(broadcast(f.beta1), moment1, broadcast(f.rest1) * g);
  moment2 = fma(broadcast(f.beta2), moment2, (broadcast(f.rest2) * g) * g);
  const V denominator = fma(sqrt(moment2), broadcast(f.inverse_sqrt_correction), broadcast(f.eps));
  master = fnma(broadcast(f.step), moment1 / denominator, master * broadcast(f.decay));
}

}  // namespace rounding
}  // namespace strata::device
