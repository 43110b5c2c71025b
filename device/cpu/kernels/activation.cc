#include "device/cpu/kernels/lanes/activation16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

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

#define STRATA_OF(F, kernel) \
  { kernel<F, float>, kernel<F, bf16>, kernel<F, fp16> }
extern const ActivationKernels activation_kernels_table = {
    .forward = {STRATA_OF(GeluTanh, forward), STRATA_OF(GeluErf, forward)},
    .backward = {STRATA_OF(GeluTanh, backward), STRATA_OF(GeluErf, backward)},
    .gated_forward = {STRATA_OF(Silu, gated_forward), STRATA_OF(GeluErf, gated_forward)},
    .gated_backward = {STRATA_OF(Silu, gated_backward), STRATA_OF(GeluErf, gated_backward)},
};

}  // namespace strata::device::cpu::STRATA_ISA
