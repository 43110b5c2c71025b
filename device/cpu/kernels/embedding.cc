#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename T, typename Out>
[[gnu::flatten]] static void sum_rows(const std::byte* rows, const std::uint32_t* which, std::size_t count,
                                      std::byte* out, std::size_t width) {
  const auto* from = reinterpret_cast<const T*>(rows);
  auto* to = reinterpret_cast<Out*>(out);
  // Four registers of columns at a time: long enough to stream a row's piece, and the sums never leave the registers.
  std::size_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
    F32x16 s[4] = {zeros(), zeros(), zeros(), zeros()};
    for (std::size_t k = 0; k < count; ++k) {
      const T* row = from + which[k] * width + i;
      for (int j = 0; j < 4; ++j) s[j] = s[j] + load(row + j * kLanes);
    }
    for (int j = 0; j < 4; ++j) store(to + i + j * kLanes, s[j]);
  }
  for16(width - i, [&](std::size_t j, auto some) {
    F32x16 s = zeros();
    for (std::size_t k = 0; k < count; ++k) s = s + load(from + which[k] * width + i + j, some);
    store(to + i + j, s, some);
  });
}

extern const EmbeddingKernels embedding_kernels_table = {
    .sum_rows = {{sum_rows<float, float>, sum_rows<float, bf16>, sum_rows<float, fp16>},
                 {sum_rows<bf16, float>, sum_rows<bf16, bf16>, sum_rows<bf16, fp16>},
                 {sum_rows<fp16, float>, sum_rows<fp16, bf16>, sum_rows<fp16, fp16>}},
};

}  // namespace strata::device::cpu::STRATA_ISA
