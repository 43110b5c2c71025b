#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/lanes/philox16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename T>
[[gnu::flatten]] static void dropout(const RandomStream& stream, std::uint64_t index, std::uint32_t threshold,
                                     float scale, const std::byte* x, const std::byte* residual, std::byte* out,
                                     std::size_t n) {
  const RandomStream s = stream;
  const auto* from = reinterpret_cast<const T*>(x);
  const auto* base = reinterpret_cast<const T*>(residual);
  auto* to = reinterpret_cast<T*>(out);
  const F32x16 factor = broadcast(scale);
  alignas(64) std::uint32_t words[32];
  for16(n, [&](std::size_t i, auto some) {
    if (i % 32 == 0) random_words32(s, (index + i) / 4, words);
    F32x16 y = keep_from(load(from + i, some) * factor, words + i % 32, threshold);
    if (base) y = load(base + i, some) + y;
    store(to + i, y, some);
  });
}

extern const DropoutKernels dropout_kernels_table = {.dropout = STRATA_BY_DTYPE(dropout)};

}  // namespace strata::device::cpu::STRATA_ISA
