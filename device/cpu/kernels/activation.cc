#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"
#include "device/numeric/normal_tail.h"

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
  // 1 - s = e s. An infinite e is limited, because s is then 0 and the product would be NaN.
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
  // 0 or 1. It lies in between only for x so close to 0 that `left` is 1/2.
  const F32x16 positive = min(one, max(zeros(), x * broadcast(1e38f)));
  return fma(one - (positive + positive), left, positive);
}

STRATA_LANES F32x16 silu(F32x16 x) {
  return x * sigmoid(x);
}

// The functions of Activation and Gate, with their derivatives.
struct ValueAndSlope {
  F32x16 value, slope;
};
struct GeluTanh {
  STRATA_LANES F32x16 value(F32x16 x) { return gelu(x); }
  STRATA_LANES F32x16 slope(F32x16 x) { return gelu_derivative(x); }
};
struct GeluErf {
  STRATA_LANES F32x16 value(F32x16 x) { return gelu_erf(x); }
  STRATA_LANES F32x16 slope(F32x16 x) { return gelu_erf_derivative(x); }
  STRATA_LANES ValueAndSlope both(F32x16 x) { return {value(x), slope(x)}; }
};
struct Silu {
  STRATA_LANES F32x16 value(F32x16 x) { return silu(x); }
  // s + x s (1 - s) with s = sigmoid(x).
  STRATA_LANES ValueAndSlope both(F32x16 x) {
    const F32x16 s = sigmoid(x), out = x * s;
    return {out, fma(out, broadcast(1.0f) - s, s)};
  }
};

template <typename F, typename T>
[[gnu::flatten]] static void forward(const std::byte* x, std::byte* y, std::size_t n) {
  const auto* from = reinterpret_cast<const T*>(x);
  auto* to = reinterpret_cast<T*>(y);
  for16(n, [&](std::size_t i, auto some) { store(to + i, F::value(load(from + i, some)), some); });
}

template <typename F, typename T>
[[gnu::flatten]] static void backward(const std::byte* dy, const std::byte* x, std::byte* dx, std::size_t n) {
  const auto* d = reinterpret_cast<const T*>(dy);
  const auto* from = reinterpret_cast<const T*>(x);
  auto* to = reinterpret_cast<T*>(dx);
  for16(n, [&](std::size_t i, auto some) { store(to + i, load(d + i, some) * F::slope(load(from + i, some)), some); });
}

template <typename F, typename T>
[[gnu::flatten]] static void gated_forward(const std::byte* gate_up, std::byte* y, std::size_t width) {
  const auto* gate = reinterpret_cast<const T*>(gate_up);
  const T* up = gate + width;
  auto* to = reinterpret_cast<T*>(y);
  for16(width,
        [&](std::size_t i, auto some) { store(to + i, F::value(load(gate + i, some)) * load(up + i, some), some); });
}

template <typename F, typename T>
[[gnu::flatten]] static void gated_backward(const std::byte* dy, const std::byte* gate_up, std::byte* d_gate_up,
                                            std::size_t width) {
  const auto* d_out = reinterpret_cast<const T*>(dy);
  const auto* gate = reinterpret_cast<const T*>(gate_up);
  auto* d_gate = reinterpret_cast<T*>(d_gate_up);
  for16(width, [&](std::size_t i, auto some) {
    const F32x16 d = load(d_out + i, some), up = load(gate + width + i, some);
    const ValueAndSlope g = F::both(load(gate + i, some));
    store(d_gate + i, d * up * g.slope, some);
    store(d_gate + width + i, d * g.value, some);
  });
}

extern const ActivationKernels activation_kernels_table = {
    .forward = {STRATA_OF(GeluTanh, forward), STRATA_OF(GeluErf, forward)},
    .backward = {STRATA_OF(GeluTanh, backward), STRATA_OF(GeluErf, backward)},
    .gated_forward = {STRATA_OF(Silu, gated_forward), STRATA_OF(GeluErf, gated_forward)},
    .gated_backward = {STRATA_OF(Silu, gated_backward), STRATA_OF(GeluErf, gated_backward)},
};

}  // namespace strata::device::cpu::STRATA_ISA
