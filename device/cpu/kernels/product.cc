#include "device/cpu/kernels/product.h"

#include <immintrin.h>

namespace strata::device::cpu::STRATA_ISA {

static void widen_bf16(const bf16* from, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* to) {
  for (std::int64_t r = 0; r < rows; ++r, from += stride, to += columns)
    for (std::int64_t c = 0; c < columns; ++c) to[c] = to_float(from[c]);
}

static void round_bf16(const float* sum, std::int64_t rows, std::int64_t columns, bf16* to, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r, sum += columns, to += stride)
    for (std::int64_t c = 0; c < columns; ++c) to[c] = from_float<bf16>(sum[c]);
}

// Written out: the compiler does not see F16C in the portable conversions.
static void widen_fp16(const fp16* from, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* to) {
  for (std::int64_t r = 0; r < rows; ++r, from += stride, to += columns) {
    std::int64_t c = 0;
    for (; c + 8 <= columns; c += 8)
      _mm256_storeu_ps(to + c, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + c))));
    for (; c < columns; ++c) to[c] = _cvtsh_ss(from[c].bits);
  }
}

static void round_fp16(const float* sum, std::int64_t rows, std::int64_t columns, fp16* to, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r, sum += columns, to += stride) {
    std::int64_t c = 0;
    for (; c + 8 <= columns; c += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + c),
                       _mm256_cvtps_ph(_mm256_loadu_ps(sum + c), _MM_FROUND_TO_NEAREST_INT));
    for (; c < columns; ++c) to[c].bits = _cvtss_sh(sum[c], _MM_FROUND_TO_NEAREST_INT);
  }
}

extern const ProductKernels product_kernels_table = {widen_bf16, widen_fp16, round_bf16, round_fp16};

}  // namespace strata::device::cpu::STRATA_ISA
