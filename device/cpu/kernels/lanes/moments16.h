#pragma once
// Moments of an optimizer in 8 bits and in bf16, for kernels: the vector forms of device/numeric/dynamic_map.h and of
// stochastic rounding (device/numeric/dtype.h), with the same bits, sixteen at a time.

#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/numeric/dynamic_map.h"

namespace strata::device::cpu::STRATA_ISA {

#if defined(__AVX512F__)

STRATA_LANES F32x16 magnitude(F32x16 x) {
  return {_mm512_abs_ps(x.v)};
}

// Entry i % 8 of a table, for each lane's i.
STRATA_LANES __m512 entry(const float* table, __m512i i) {
  return _mm512_permutexvar_ps(i, _mm512_broadcast_f32x8(_mm256_loadu_ps(table)));
}

template <bool kSigned>
STRATA_LANES F32x16 decode16(const std::uint8_t* bytes) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  const __m512i count =
      kSigned ? _mm512_cvtepi8_epi32(all) : _mm512_add_epi32(_mm512_cvtepu8_epi32(all), _mm512_set1_epi32(1));
  const __m512 n = _mm512_cvtepi32_ps(count);
  const __m512i field = _mm512_srli_epi32(_mm512_castps_si512(n), 23);
  const __m512 slope = entry(map.slope, field), offset = entry(map.offset, field);
  if constexpr (!kSigned) return {_mm512_fmadd_ps(slope, n, offset)};
  // offset ^ (~n & sign bit): negated if n is positive.
  const __m512i with_sign = _mm512_ternarylogic_epi32(_mm512_castps_si512(offset), _mm512_castps_si512(n),
                                                      _mm512_set1_epi32(INT32_MIN), 0xd2);
  return {_mm512_maskz_fnmadd_ps(_mm512_test_epi32_mask(count, count), slope, n, _mm512_castsi512_ps(with_sign))};
}

template <bool kSigned>
STRATA_LANES void encode16(F32x16 value, std::uint8_t* bytes) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  const __m512 x = kSigned ? _mm512_abs_ps(value.v) : value.v;
  const __m512 log10 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_castps_si512(x)), _mm512_set1_ps(kLog10Of2 * 0x1p-23f),
                                       _mm512_set1_ps(-127 * kLog10Of2 + map.exponent));
  __m512i e = _mm512_max_epi32(_mm512_cvttps_epi32(log10), _mm512_set1_epi32(map.first));
  e = _mm512_mask_sub_epi32(e, _mm512_cmp_ps_mask(x, entry(map.least, e), _CMP_LT_OQ), e, _mm512_set1_epi32(1));
  const __m512 step = _mm512_min_ps(_mm512_fmadd_ps(entry(map.steps, e), x, entry(map.shift, e)), entry(map.most, e));
  auto* to = reinterpret_cast<__m128i*>(bytes);
  if constexpr (!kSigned) return _mm_storeu_si128(to, _mm512_cvtusepi32_epi8(_mm512_cvttps_epi32(step)));
  const __m512i zero = _mm512_setzero_si512();
  const __mmask16 large = _mm512_cmp_ps_mask(x, _mm512_set1_ps(map.least[0]), _CMP_GE_OQ);
  const __mmask16 positive = _mm512_cmpge_epi32_mask(_mm512_castps_si512(value.v), zero);
  const __m512i n = _mm512_maskz_cvttps_epi32(large, step);
  _mm_storeu_si128(to, _mm512_cvtsepi32_epi8(_mm512_mask_sub_epi32(n, positive, zero, n)));
}

#else

STRATA_LANES F32x16 magnitude(F32x16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.lo), _mm256_andnot_ps(sign, x.hi)};
}

STRATA_LANES __m256 entry(const float* table, __m256i i) {
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), i);
}

template <bool kSigned>
STRATA_LANES __m256 decode8(__m128i bytes) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  const __m256i count =
      kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_add_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_set1_epi32(1));
  const __m256 n = _mm256_cvtepi32_ps(count);
  const __m256i field = _mm256_srli_epi32(_mm256_castps_si256(n), 23);
  const __m256 slope = entry(map.slope, field), offset = entry(map.offset, field);
  if constexpr (!kSigned) return _mm256_fmadd_ps(slope, n, offset);
  // Negated if n is positive.
  const __m256 with_sign = _mm256_xor_ps(offset, _mm256_andnot_ps(n, _mm256_set1_ps(-0.0f)));
  const __m256i zero = _mm256_cmpeq_epi32(count, _mm256_setzero_si256());
  return _mm256_andnot_ps(_mm256_castsi256_ps(zero), _mm256_fnmadd_ps(slope, n, with_sign));
}
template <bool kSigned>
STRATA_LANES F32x16 decode16(const std::uint8_t* bytes) {
  const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  return {decode8<kSigned>(all), decode8<kSigned>(_mm_srli_si128(all, 8))};
}

// The codes, not yet truncated to eight bits.
template <bool kSigned>
STRATA_LANES __m256i encode8(__m256 value) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  const __m256 x = kSigned ? _mm256_andnot_ps(_mm256_set1_ps(-0.0f), value) : value;
  const __m256 log10 = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_castps_si256(x)), _mm256_set1_ps(kLog10Of2 * 0x1p-23f),
                                       _mm256_set1_ps(-127 * kLog10Of2 + map.exponent));
  __m256i e = _mm256_max_epi32(_mm256_cvttps_epi32(log10), _mm256_set1_epi32(map.first));
  e = _mm256_add_epi32(e, _mm256_castps_si256(_mm256_cmp_ps(x, entry(map.least, e), _CMP_LT_OQ)));
  const __m256 step = _mm256_min_ps(_mm256_fmadd_ps(entry(map.steps, e), x, entry(map.shift, e)), entry(map.most, e));
  const __m256i n = _mm256_cvttps_epi32(step);
  if constexpr (!kSigned) return n;
  const __m256 large = _mm256_cmp_ps(x, _mm256_set1_ps(map.least[0]), _CMP_GE_OQ);
  const __m256i positive = _mm256_xor_si256(_mm256_castps_si256(value), _mm256_set1_epi32(INT32_MIN));
  return _mm256_sign_epi32(_mm256_and_si256(n, _mm256_castps_si256(large)), positive);
}
template <bool kSigned>
STRATA_LANES void encode16(F32x16 value, std::uint8_t* bytes) {
  const __m256i sixteen =
      _mm256_permute4x64_epi64(_mm256_packs_epi32(encode8<kSigned>(value.lo), encode8<kSigned>(value.hi)), 0xd8);
  const __m128i low = _mm256_castsi256_si128(sixteen), high = _mm256_extracti128_si256(sixteen, 1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes),
                   kSigned ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high));
}

#endif

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
