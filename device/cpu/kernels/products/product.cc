#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename T>
[[gnu::flatten]] static void widen(const std::byte* from, std::size_t stride, std::size_t rows, std::size_t columns,
                                   float* to) {
  const auto* x = reinterpret_cast<const T*>(from);
  for (std::size_t r = 0; r < rows; ++r, x += stride, to += columns)
    for16(columns, [&](std::size_t c, auto some) { store(to + c, load(x + c, some), some); });
}

template <typename T>
[[gnu::flatten]] static void round(const float* from, std::size_t rows, std::size_t columns, std::byte* to,
                                   std::size_t stride) {
  auto* y = reinterpret_cast<T*>(to);
  for (std::size_t r = 0; r < rows; ++r, from += columns, y += stride)
    for16(columns, [&](std::size_t c, auto some) { store(y + c, load(from + c, some), some); });
}

extern const ProductKernels product_kernels_table = {.widen = STRATA_BY_DTYPE(widen), .round = STRATA_BY_DTYPE(round)};

template <typename T>
[[gnu::flatten]] static void rows(const Matvec& m) {
  const auto* x = reinterpret_cast<const T*>(m.x);
  for (std::size_t row = 0; row < m.outputs; ++row) {
    const auto* w = reinterpret_cast<const T*>(m.w) + row * m.stride;
    F32x16 sums[4] = {zeros(), zeros(), zeros(), zeros()};
    for16_by4(m.inputs, [&](std::size_t i, auto some, int at) {
      sums[at] = fma(load(w + i, some), load(x + i, some), sums[at]);
    });
    m.y[row] = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
}

// Takes eight vectors of outputs at a time, so that a row's piece is long enough for the processor to prefetch.
template <typename T>
[[gnu::flatten]] static void columns(const Matvec& m) {
  constexpr std::size_t kVectors = 8, kColumns = kVectors * kLanes;
  const auto *w = reinterpret_cast<const T*>(m.w), *x = reinterpret_cast<const T*>(m.x);
  std::size_t first = 0;
  for (; first + kColumns <= m.outputs; first += kColumns) {
    F32x16 sums[kVectors];
    for (F32x16& s : sums) s = zeros();
    for (std::size_t i = 0; i < m.inputs; ++i) {
      const F32x16 xi = broadcast(to_float(x[i]));
      for (std::size_t v = 0; v < kVectors; ++v)
        sums[v] = fma(load(w + i * m.stride + first + v * kLanes), xi, sums[v]);
    }
    for (std::size_t v = 0; v < kVectors; ++v) store(m.y + first + v * kLanes, sums[v]);
  }
  for16(m.outputs - first, [&](std::size_t column, auto some) {
    F32x16 s = zeros();
    for (std::size_t i = 0; i < m.inputs; ++i)
      s = fma(load(w + i * m.stride + first + column, some), broadcast(to_float(x[i])), s);
    store(m.y + first + column, s, some);
  });
}

extern const MatvecKernels matvec_kernels_table = {.rows = STRATA_BY_DTYPE(rows), .columns = STRATA_BY_DTYPE(columns)};

}  // namespace strata::device::cpu::STRATA_ISA
