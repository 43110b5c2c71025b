#include <type_traits>

#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

STRATA_LANES float total(const F32x16 (&s)[4]) {
  return sum((s[0] + s[1]) + (s[2] + s[3]));
}

// Mean and variance take two passes over the vector, because E[x^2] - mean^2 would cancel. The second pass finds the
// vector in the L1 cache.
template <bool kCentred, typename T>
[[gnu::flatten]] static void forward(const NormForward& a) {
  const auto* gain = reinterpret_cast<const T*>(a.gain);
  const auto* bias = reinterpret_cast<const T*>(a.bias);
  const float width = static_cast<float>(a.width);
  for (std::size_t vector = 0; vector < a.rows * a.groups; ++vector) {
    const std::size_t row = vector / a.groups, offset = vector % a.groups * a.width;
    const T* x = reinterpret_cast<const T*>(a.x) + row * a.x_stride + offset;
    T* y = reinterpret_cast<T*>(a.y) + row * a.y_stride + offset;

    float mean = 0;
    if constexpr (kCentred) {
      F32x16 s[4] = {zeros(), zeros(), zeros(), zeros()};
      for16_by4(a.width, [&](std::size_t i, auto some, int k) { s[k] = s[k] + load(x + i, some); });
      mean = total(s) / width;
      a.mean[vector] = mean;
    }
    F32x16 s[4] = {zeros(), zeros(), zeros(), zeros()};
    const F32x16 centre = broadcast(mean);
    for16_by4(a.width, [&](std::size_t i, auto some, int k) {
      F32x16 d = load(x + i, some);
      if constexpr (kCentred) d = only(d - centre, 0.0f, some);
      s[k] = fma(d, d, s[k]);
    });
    const float rstd = 1.0f / __builtin_sqrtf(total(s) / width + a.eps);
    a.rstd[vector] = rstd;

    const F32x16 scale = broadcast(rstd);
    for16(a.width, [&](std::size_t i, auto some) {
      const F32x16 v = load(x + i, some), g = load(gain + i, some);
      if constexpr (kCentred)
        store(y + i, fma((v - centre) * scale, g, load(bias + i, some)), some);
      else
        store(y + i, v * scale * g, some);
    });
  }
}

// With h = (x - mean) * rstd and e = dy * gain: dx = rstd * (e - mean(e) - h * mean(e * h)) (without mean(e) for RMS).
template <bool kCentred, typename T>
[[gnu::flatten]] static void backward(const NormBackward& a) {
  const auto* gain = reinterpret_cast<const T*>(a.gain);
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  for16(a.width, [&](std::size_t i, auto some) {
    store(a.dgain + i, zeros(), some);
    if constexpr (kCentred) store(a.dbias + i, zeros(), some);
  });
  for (std::size_t vector = 0; vector < a.rows * a.groups; ++vector) {
    const std::size_t row = vector / a.groups, offset = vector % a.groups * a.width;
    const T* x = reinterpret_cast<const T*>(a.x) + row * a.x_stride + offset;
    const T* dy = reinterpret_cast<const T*>(a.dy) + row * a.y_stride + offset;
    const T* residual = a.residual ? reinterpret_cast<const T*>(a.residual) + row * a.x_stride + offset : nullptr;
    T* dx = reinterpret_cast<T*>(a.dx) + row * a.x_stride + offset;
    const F32x16 centre = broadcast(kCentred ? a.mean[vector] : 0.0f), scale = broadcast(a.rstd[vector]);

    F32x16 e_sum[4] = {zeros(), zeros(), zeros(), zeros()}, eh_sum[4] = {zeros(), zeros(), zeros(), zeros()};
    for16_by4(a.width, [&](std::size_t i, auto some, int k) {
      const F32x16 d = load(dy + i, some), e = d * load(gain + i, some);
      F32x16 h = load(x + i, some);
      if constexpr (kCentred) h = h - centre;
      h = h * scale;
      if constexpr (kCentred) e_sum[k] = e_sum[k] + e;
      eh_sum[k] = fma(e, h, eh_sum[k]);
      store(a.dgain + i, fma(d, h, load(a.dgain + i, some)), some);
      if constexpr (kCentred) store(a.dbias + i, load(a.dbias + i, some) + d, some);
    });
    const F32x16 e_mean = broadcast(kCentred ? total(e_sum) * inverse_width : 0.0f);
    const F32x16 eh_mean = broadcast(total(eh_sum) * inverse_width);

    const auto write = [&](auto has_residual) {
      for16(a.width, [&](std::size_t i, auto some) {
        F32x16 e = load(dy + i, some) * load(gain + i, some), h = load(x + i, some);
        if constexpr (kCentred) {
          h = h - centre;
          e = e - e_mean;
        }
        const F32x16 d = fnma(h * scale, eh_mean, e);
        if constexpr (has_residual)
          store(dx + i, fma(d, scale, load(residual + i, some)), some);
        else
          store(dx + i, d * scale, some);
      });
    };
    if (a.residual)
      write(std::true_type{});
    else
      write(std::false_type{});
  }
}

extern const NormKernels norm_kernels_table = {
    .forward = {STRATA_OF(false, forward), STRATA_OF(true, forward)},
    .backward = {STRATA_OF(false, backward), STRATA_OF(true, backward)},
};

}  // namespace strata::device::cpu::STRATA_ISA
