#include "device/cpu/kernels/activation.h"

#include "device/cpu/kernels/lanes/activation16.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename T>
[[gnu::flatten]] static void gelu_forward(const std::byte* x, std::byte* y, std::size_t n) {
  const auto* from = reinterpret_cast<const T*>(x);
  auto* to = reinterpret_cast<T*>(y);
  for16(n, [&](std::size_t i, auto some) { store(to + i, gelu(load(from + i, some)), some); });
}

template <typename T>
[[gnu::flatten]] static void gelu_backward(const std::byte* dy, const std::byte* x, std::byte* dx, std::size_t n) {
  const auto* d = reinterpret_cast<const T*>(dy);
  const auto* from = reinterpret_cast<const T*>(x);
  auto* to = reinterpret_cast<T*>(dx);
  for16(n, [&](std::size_t i, auto some) {
    store(to + i, load(d + i, some) * gelu_derivative(load(from + i, some)), some);
  });
}

template <typename T>
[[gnu::flatten]] static void gelu_erf_forward(const std::byte* x, std::byte* y, std::size_t n) {
  const auto* from = reinterpret_cast<const T*>(x);
  auto* to = reinterpret_cast<T*>(y);
  for16(n, [&](std::size_t i, auto some) { store(to + i, gelu_erf(load(from + i, some)), some); });
}

template <typename T>
[[gnu::flatten]] static void gelu_erf_backward(const std::byte* dy, const std::byte* x, std::byte* dx, std::size_t n) {
  const auto* d = reinterpret_cast<const T*>(dy);
  const auto* from = reinterpret_cast<const T*>(x);
  auto* to = reinterpret_cast<T*>(dx);
  for16(n, [&](std::size_t i, auto some) {
    store(to + i, load(d + i, some) * gelu_erf_derivative(load(from + i, some)), some);
  });
}

template <typename T>
[[gnu::flatten]] static void swiglu_forward(const std::byte* gate_up, std::byte* y, std::size_t width) {
  const auto* gate = reinterpret_cast<const T*>(gate_up);
  const T* up = gate + width;
  auto* to = reinterpret_cast<T*>(y);
  for16(width, [&](std::size_t i, auto some) { store(to + i, silu(load(gate + i, some)) * load(up + i, some), some); });
}

// d silu(g)/dg = s + g s (1 - s) with s = sigmoid(g).
template <typename T>
[[gnu::flatten]] static void swiglu_backward(const std::byte* dy, const std::byte* gate_up, std::byte* d_gate_up,
                                             std::size_t width) {
  const auto* d_out = reinterpret_cast<const T*>(dy);
  const auto* gate = reinterpret_cast<const T*>(gate_up);
  auto* d_gate = reinterpret_cast<T*>(d_gate_up);
  for16(width, [&](std::size_t i, auto some) {
    const F32x16 d = load(d_out + i, some), g = load(gate + i, some), up = load(gate + width + i, some);
    const F32x16 s = sigmoid(g), out = g * s;
    store(d_gate + i, d * up * fma(out, broadcast(1.0f) - s, s), some);
    store(d_gate + width + i, d * out, some);
  });
}

template <typename T>
[[gnu::flatten]] static void geglu_forward(const std::byte* gate_up, std::byte* y, std::size_t width) {
  const auto* gate = reinterpret_cast<const T*>(gate_up);
  const T* up = gate + width;
  auto* to = reinterpret_cast<T*>(y);
  for16(width,
        [&](std::size_t i, auto some) { store(to + i, gelu_erf(load(gate + i, some)) * load(up + i, some), some); });
}

template <typename T>
[[gnu::flatten]] static void geglu_backward(const std::byte* dy, const std::byte* gate_up, std::byte* d_gate_up,
                                            std::size_t width) {
  const auto* d_out = reinterpret_cast<const T*>(dy);
  const auto* gate = reinterpret_cast<const T*>(gate_up);
  auto* d_gate = reinterpret_cast<T*>(d_gate_up);
  for16(width, [&](std::size_t i, auto some) {
    const F32x16 d = load(d_out + i, some), g = load(gate + i, some), up = load(gate + width + i, some);
    store(d_gate + i, d * up * gelu_erf_derivative(g), some);
    store(d_gate + width + i, d * gelu_erf(g), some);
  });
}

extern const ActivationKernels activation_kernels_table = {
    .gelu_forward = STRATA_BY_DTYPE(gelu_forward),
    .gelu_backward = STRATA_BY_DTYPE(gelu_backward),
    .gelu_erf_forward = STRATA_BY_DTYPE(gelu_erf_forward),
    .gelu_erf_backward = STRATA_BY_DTYPE(gelu_erf_backward),
    .swiglu_forward = STRATA_BY_DTYPE(swiglu_forward),
    .swiglu_backward = STRATA_BY_DTYPE(swiglu_backward),
    .geglu_forward = STRATA_BY_DTYPE(geglu_forward),
    .geglu_backward = STRATA_BY_DTYPE(geglu_backward),
};

}  // namespace strata::device::cpu::STRATA_ISA
