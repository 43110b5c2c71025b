#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename T>
[[gnu::flatten]] static void rotate(std::byte* row, std::size_t heads, std::size_t half, const float* cos,
                                    const float* sin, bool inverse) {
  auto* first = reinterpret_cast<T*>(row);
  const F32x16 sign = broadcast(inverse ? -1.0f : 1.0f);
  for (std::size_t head = 0; head < heads; ++head, first += 2 * half) {
    T* second = first + half;
    for16(half, [&](std::size_t i, auto some) {
      const F32x16 a = load(first + i, some), b = load(second + i, some);
      const F32x16 c = load(cos + i, some), s = load(sin + i, some) * sign;
      store(first + i, fnma(b, s, a * c), some);
      store(second + i, fma(a, s, b * c), some);
    });
  }
}

extern const RopeKernels rope_kernels_table = {.rotate = STRATA_BY_DTYPE(rotate)};

}  // namespace strata::device::cpu::STRATA_ISA
