#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename T>
[[gnu::flatten]] static float row_square(const std::byte* w, std::size_t n, const float* a, const float* b,
                                         std::size_t rank, float scale) {
  const auto* p = reinterpret_cast<const T*>(w);
  F32x16 sum = broadcast(0.0f);
  for16(n, [&](std::size_t i, auto some) {
    F32x16 v = load(p + i, some);
    for (std::size_t r = 0; r < rank; ++r) v = v + broadcast(scale * b[r]) * load(a + r * n + i, some);
    sum = sum + v * v;
  });
  float parts[kLanes];
  store(parts, sum, Full{});
  float total = 0;
  for (const float part : parts) total += part;
  return total;
}

template <typename T>
[[gnu::flatten]] static void column_squares(const std::byte* w, std::size_t n, std::size_t count, std::size_t stride,
                                            const float* a, const float* b, std::size_t rank, float scale,
                                            float* sums) {
  const auto* p = reinterpret_cast<const T*>(w);
  for16(count, [&](std::size_t c, auto some) {
    F32x16 sum = broadcast(0.0f);
    for (std::size_t i = 0; i < n; ++i) {
      F32x16 v = load(p + i * stride + c, some);
      for (std::size_t r = 0; r < rank; ++r) v = v + broadcast(scale * a[r * n + i]) * load(b + r * stride + c, some);
      sum = sum + v * v;
    }
    store(sums + c, sum, some);
  });
}

template <typename T>
[[gnu::flatten]] static void scale_row(const std::byte* x, const float* scales, const std::byte* bias,
                                       const std::byte* added, float sign, std::byte* out, std::size_t n) {
  const auto* p = reinterpret_cast<const T*>(x);
  const auto* b = reinterpret_cast<const T*>(bias);
  const auto* a = reinterpret_cast<const T*>(added);
  auto* o = reinterpret_cast<T*>(out);
  for16(n, [&](std::size_t i, auto some) {
    F32x16 v = load(p + i, some);
    if (scales) v = v * load(scales + i, some);
    if (b) v = v + load(b + i, some);
    if (a) v = v + broadcast(sign) * load(a + i, some);
    store(o + i, v, some);
  });
}

template <typename T, typename Y>
[[gnu::flatten]] static void column_dots(const std::byte* x, const std::byte* y, std::size_t rows, std::size_t columns,
                                         std::size_t x_stride, std::size_t y_stride, float* sums) {
  const auto* p = reinterpret_cast<const T*>(x);
  const auto* q = reinterpret_cast<const Y*>(y);
  for16(columns, [&](std::size_t c, auto some) {
    F32x16 sum = broadcast(0.0f);
    for (std::size_t r = 0; r < rows; ++r)
      sum = sum + load(p + r * x_stride + c, some) * load(q + r * y_stride + c, some);
    store(sums + c, sum, some);
  });
}

#define STRATA_DORA(T) \
  { row_square<T>, column_squares<T>, scale_row<T>, column_dots<T, T>, column_dots<T, float> }
extern const DoraKernelTable dora_kernels_table = {
    {STRATA_DORA(float), STRATA_DORA(::strata::device::bf16), STRATA_DORA(::strata::device::fp16)}};

}  // namespace strata::device::cpu::STRATA_ISA
