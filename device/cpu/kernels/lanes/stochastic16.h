#pragma once
#include "device/cpu/kernels/lanes/lanes16.h"

// The vector form of device/numeric/stochastic_rounding.h for kernels: the same bits, sixteen at a time.
namespace strata::device::cpu::STRATA_ISA {

// Which half of its 32 random bits an element uses.
enum class Bits { low, high };

#if defined(__AVX512F__)

template <Bits kBits>
STRATA_LANES __m256i narrow_stochastically(F32x16 x, const std::uint32_t* words) {
  const __m512i word = _mm512_loadu_si512(words);
  const __m512i random =
      kBits == Bits::high ? _mm512_srli_epi32(word, 16) : _mm512_and_si512(word, _mm512_set1_epi32(0xffff));
  const __m512i bits = _mm512_castps_si512(x.v);
  __m512i rounded = _mm512_add_epi32(bits, random);
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
template <Bits kBits>
STRATA_LANES void store_stochastically(bf16* p, F32x16 x, const std::uint32_t* words, Full = {}) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_stochastically<kBits>(x, words));
}
template <Bits kBits>
STRATA_LANES void store_stochastically(bf16* p, F32x16 x, const std::uint32_t* words, Part n) {
  _mm256_mask_storeu_epi16(p, mask_of(n), narrow_stochastically<kBits>(x, words));
}

#else

template <Bits kBits>
STRATA_LANES __m256i narrow_stochastically(__m256 x, const std::uint32_t* words) {
  const __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
  const __m256i random =
      kBits == Bits::high ? _mm256_srli_epi32(word, 16) : _mm256_and_si256(word, _mm256_set1_epi32(0xffff));
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_srli_epi32(_mm256_blendv_epi8(_mm256_add_epi32(bits, random), quiet, nan), 16);
}
template <Bits kBits>
STRATA_LANES void store_stochastically(bf16* p, F32x16 x, const std::uint32_t* words, Full = {}) {
  const __m256i packed =
      _mm256_packus_epi32(narrow_stochastically<kBits>(x.lo, words), narrow_stochastically<kBits>(x.hi, words + 8));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
template <Bits kBits>
STRATA_LANES void store_stochastically(bf16* p, F32x16 x, const std::uint32_t* words, Part part) {
  bf16 all[kLanes];
  store_stochastically<kBits>(all, x, words);
  for (std::size_t i = 0; i < part.n; ++i) p[i] = all[i];
}

#endif

}  // namespace strata::device::cpu::STRATA_ISA
