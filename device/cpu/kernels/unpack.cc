#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"
#include "device/numeric/nf4.h"

namespace strata::device::cpu::STRATA_ISA {

// A scale has 16 values. They are rounded, then looked up; of 16-bit values, each half is in a register.
template <typename T>
STRATA_LANES void look_up(const T* values, const std::uint8_t* codes, T* out) {
  if constexpr (sizeof(T) == 2) {
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
    const __m256i low_bytes = _mm256_and_si256(all, _mm256_set1_epi16(0xff)), high_bytes = _mm256_srli_epi16(all, 8);
    const auto packed = [](__m256i words) {
      return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    };
    const __m128i low = packed(low_bytes), high = packed(high_bytes), half = _mm_set1_epi8(0xf);
    for (std::size_t i = 0; i < kScaleBlock / 2; i += 16) {
      const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i));
      const __m128i even = _mm_and_si128(_mm_srli_epi16(pairs, 4), half), odd = _mm_and_si128(pairs, half);
      auto* to = reinterpret_cast<__m128i*>(out + 2 * i);
      for (const __m128i at : {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)}) {
        const __m128i l = _mm_shuffle_epi8(low, at), h = _mm_shuffle_epi8(high, at);
        _mm_storeu_si128(to++, _mm_unpacklo_epi8(l, h));
        _mm_storeu_si128(to++, _mm_unpackhi_epi8(l, h));
      }
    }
  } else {
    for (std::size_t i = 0; i < kScaleBlock / 2; ++i) {
      out[2 * i] = values[codes[i] >> 4];
      out[2 * i + 1] = values[codes[i] & 0xf];
    }
  }
}

template <typename T>
[[gnu::flatten]] static void nf4(const float* scales, const std::byte* codes, std::byte* out) {
  const auto* c = reinterpret_cast<const std::uint8_t*>(codes);
  auto* o = reinterpret_cast<T*>(out);
  for (std::size_t block = 0; block < kNf4Scales; ++block) {
    T values[kLanes];
    store(values, load(kNf4Values, Full{}) * broadcast(scales[block]), Full{});
    look_up(values, c + block * (kScaleBlock / 2), o + block * kScaleBlock);
  }
}

extern const UnpackKernels unpack_kernels_table = {.nf4 = STRATA_BY_DTYPE(nf4)};

}  // namespace strata::device::cpu::STRATA_ISA
