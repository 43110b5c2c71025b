#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "device/numeric/philox.h"

// The vector form of device/numeric/philox.h for kernels: the same numbers, eight blocks at a time.
namespace strata::device::cpu::STRATA_ISA {

#if defined(__AVX512F__)
// words[0..32) = the numbers of blocks first .. first + 7. Each 64-bit lane holds one word of one block in its low
// half. A multiplication reads only low halves, so high halves may contain anything. Lanes hold the blocks in an order
// that the final interleaving turns into the right one.
static inline void random_words32(const RandomStream& s, std::uint64_t first, std::uint32_t* words) {
  const __m512i block =
      _mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(first)), _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7));
  const PhiloxBlock other = random_counter(s, 0);
  __m512i c0 = block, c1 = _mm512_add_epi64(_mm512_srli_epi64(block, 32), _mm512_set1_epi64(other.word[1]));
  __m512i c2 = _mm512_set1_epi64(other.word[2]), c3 = _mm512_set1_epi64(other.word[3]);
  const __m512i m0 = _mm512_set1_epi64(kPhiloxMultiply0), m1 = _mm512_set1_epi64(kPhiloxMultiply1);
  std::uint32_t key0 = static_cast<std::uint32_t>(s.seed), key1 = static_cast<std::uint32_t>(s.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const __m512i p0 = _mm512_mul_epu32(c0, m0), p1 = _mm512_mul_epu32(c2, m1);
    c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c1, _mm512_set1_epi64(key0), 0x96);
    c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c3, _mm512_set1_epi64(key1), 0x96);
    c1 = p1;
    c3 = p0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  const __m512i c01 = _mm512_mask_blend_epi32(0xaaaa, c0, _mm512_slli_epi64(c1, 32));
  const __m512i c23 = _mm512_mask_blend_epi32(0xaaaa, c2, _mm512_slli_epi64(c3, 32));
  _mm512_storeu_si512(words, _mm512_unpacklo_epi64(c01, c23));
  _mm512_storeu_si512(words + 16, _mm512_unpackhi_epi64(c01, c23));
}
#else
static inline void random_words16(const RandomStream& s, std::uint64_t first, std::uint32_t* words) {
  const __m256i block =
      _mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(first)), _mm256_setr_epi64x(0, 2, 1, 3));
  const PhiloxBlock other = random_counter(s, 0);
  __m256i c0 = block, c1 = _mm256_add_epi64(_mm256_srli_epi64(block, 32), _mm256_set1_epi64x(other.word[1]));
  __m256i c2 = _mm256_set1_epi64x(other.word[2]), c3 = _mm256_set1_epi64x(other.word[3]);
  const __m256i m0 = _mm256_set1_epi64x(kPhiloxMultiply0), m1 = _mm256_set1_epi64x(kPhiloxMultiply1);
  std::uint32_t key0 = static_cast<std::uint32_t>(s.seed), key1 = static_cast<std::uint32_t>(s.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const __m256i p0 = _mm256_mul_epu32(c0, m0), p1 = _mm256_mul_epu32(c2, m1);
    c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(key0));
    c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(key1));
    c1 = p1;
    c3 = p0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  const __m256i c01 = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xaa);
  const __m256i c23 = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xaa);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm256_unpacklo_epi64(c01, c23));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 8), _mm256_unpackhi_epi64(c01, c23));
}
static inline void random_words32(const RandomStream& s, std::uint64_t first, std::uint32_t* words) {
  random_words16(s, first, words);
  random_words16(s, first + 4, words + 16);
}
#endif

// Writes numbers index .. index + n - 1 of the stream, for any index, and returns the place of the first: words, or up
// to three words later. words has room for n + 3 numbers, rounded up to a multiple of 32.
static inline const std::uint32_t* random_range(const RandomStream& s, std::uint64_t index, std::size_t n,
                                                std::uint32_t* words) {
  const std::size_t skip = index % 4;
  for (std::size_t j = 0; j < skip + n; j += 32) random_words32(s, (index - skip + j) / 4, words + j);
  return words + skip;
}

}  // namespace strata::device::cpu::STRATA_ISA
