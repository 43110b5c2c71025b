#pragma once
#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/numeric/normal_tail.h"

// The activation functions on sixteen lanes, for kernels and as the epilogue of a product.
namespace strata::device::cpu::STRATA_ISA {

// 1 / (1 + e^-x). NaN stays NaN, and nothing overflows.
STRATA_LANES F32x16 sigmoid(F32x16 x) {
  const F32x16 one = broadcast(1.0f);
  return one / (one + exp(zeros() - x));
}

inline constexpr float kGeluScale = 2 * 0.79788456080286536f, kGeluCube = 0.044715f;  // 2 sqrt(2 / pi)

// Beyond +-32, sigmoid(gelu_inner(x)) is 0 or 1 to the last bit. The clamp keeps its inner polynomial finite.
STRATA_LANES F32x16 gelu_clamp(F32x16 x) {
  return min(broadcast(32.0f), max(broadcast(-32.0f), x));
}
// 2 u with u = sqrt(2 / pi) (x + 0.044715 x^3): 0.5 x (1 + tanh u) = x sigmoid(2 u), which does not cancel.
STRATA_LANES F32x16 gelu_inner(F32x16 x) {
  return x * fma(x * x, broadcast(kGeluScale * kGeluCube), broadcast(kGeluScale));
}

STRATA_LANES F32x16 gelu(F32x16 x) {
  return x * sigmoid(gelu_inner(gelu_clamp(x)));
}

// d gelu / dx = s + x s (1 - s) d(2 u)/dx.
STRATA_LANES F32x16 gelu_derivative(F32x16 x) {
  const F32x16 one = broadcast(1.0f), c = gelu_clamp(x);
  const F32x16 e = exp(zeros() - gelu_inner(c)), s = one / (one + e);
  // 1 - s = e s, but if e is infinite the two factors must not be multiplied.
  const F32x16 rest = min(broadcast(3e38f), e) * s;
  const F32x16 slope = fma(c * c, broadcast(3 * kGeluScale * kGeluCube), broadcast(kGeluScale));
  return fma(c * s, rest * slope, s);
}

// |x|, limited to the end of the normal distribution's tail.
STRATA_LANES F32x16 tail_place(F32x16 x) {
  const F32x16 largest = broadcast(kNormalTailEnd);
  return min(largest, max(x, zeros() - x));  // +0 for -0
}
// P(X > a) as a fraction of e^(-a^2 / 2).
STRATA_LANES F32x16 normal_tail(F32x16 a) {
  const F32x16 two = broadcast(2.0f), t = (a - two) / (a + two);
  F32x16 p = broadcast(kNormalTail[kNormalTailDegree]);
  for (int i = kNormalTailDegree; i-- > 0;) p = fma(p, t, broadcast(kNormalTail[i]));
  return p;
}

// x P(X < x) = max(0, x) - |x| P(X > |x|), which does not cancel.
STRATA_LANES F32x16 gelu_erf(F32x16 x) {
  const F32x16 a = tail_place(x), e = exp(zeros() - broadcast(0.5f) * a * a);
  return fnma(a * e, normal_tail(a), max(zeros(), x));
}

// P(X < x) + x phi(x): `left` for x < 0, and 1 - `left` for x > 0.
STRATA_LANES F32x16 gelu_erf_derivative(F32x16 x) {
  const F32x16 one = broadcast(1.0f), a = tail_place(x), e = exp(zeros() - broadcast(0.5f) * a * a);
  const F32x16 left = e * fnma(a, broadcast(0.39894228040143268f), normal_tail(a));  // 1 / sqrt(2 pi)
  // 0 or 1. Values in between are so close to 0 that `left` is 1/2.
  const F32x16 positive = min(one, max(zeros(), x * broadcast(1e38f)));
  return fma(one - (positive + positive), left, positive);
}

STRATA_LANES F32x16 silu(F32x16 x) {
  return x * sigmoid(x);
}

}  // namespace strata::device::cpu::STRATA_ISA
