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

}  // namespace strata::device::cpu::STRATA_ISA
