#pragma once
#include "device/cpu/kernels/lanes16.h"
#include "device/dynamic_map.h"

// Vector form of device/dynamic_map.h for kernels: the same bits, sixteen at a time.
namespace strata::device::cpu::STRATA_ISA {

#if defined(__AVX512F__)

// Entry e % 8 of a table, e in any lane.
STRATA_LANES __m512 entry(const float* table, __m512i e) {
  return _mm512_permutexvar_ps(e, _mm512_broadcast_f32x8(_mm256_loadu_ps(table)));
}

template <bool kSigned>
STRATA_LANES F32x16 decode16(const std::uint8_t* codes) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m512i from_zero = _mm512_sub_epi32(code, _mm512_set1_epi32(kSigned ? 127 : -1));
  const __m512 n = _mm512_cvtepi32_ps(_mm512_abs_epi32(from_zero));
  const __m512i e = _mm512_sub_epi32(_mm512_srli_epi32(_mm512_castps_si512(n), 23), _mm512_set1_epi32(127));
  const __m512 value = _mm512_fmadd_ps(entry(map.slope, e), n, entry(map.offset, e));
  if constexpr (!kSigned) return {value};
  const __m512 sign = _mm512_and_ps(_mm512_castsi512_ps(from_zero), _mm512_set1_ps(-0.0f));
  return {_mm512_maskz_or_ps(_mm512_test_epi32_mask(from_zero, from_zero), value, sign)};
}

template <bool kSigned>
STRATA_LANES void encode16(F32x16 value, std::uint8_t* codes) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  constexpr float kLog10Of2 = 0.30103f;
  const __m512i one = _mm512_set1_epi32(1);
  const __m512 x = _mm512_min_ps(_mm512_abs_ps(value.v), _mm512_set1_ps(1.0f));
  const __m512 log10 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_castps_si512(x)), _mm512_set1_ps(kLog10Of2 * 0x1p-23f),
                                       _mm512_set1_ps(-127 * kLog10Of2 + map.exponent));
  __m512i e = _mm512_max_epi32(_mm512_cvttps_epi32(log10), _mm512_set1_epi32(map.first));
  e = _mm512_mask_sub_epi32(e, _mm512_cmp_ps_mask(x, entry(map.least, e), _CMP_LT_OQ), e, one);
  __m512i n = _mm512_cvttps_epi32(_mm512_fmadd_ps(entry(map.steps, e), x, entry(map.shift, e)));
  const __m512i low = _mm512_sllv_epi32(one, e), high = _mm512_sub_epi32(_mm512_add_epi32(low, low), one);
  n = _mm512_min_epi32(_mm512_max_epi32(n, low), high);
  if constexpr (kSigned) {
    const __m512i zero = _mm512_set1_epi32(127);
    n = _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(x, _mm512_set1_ps(map.least[0]), _CMP_GE_OQ), n);
    const __mmask16 negative = _mm512_cmp_ps_mask(value.v, _mm512_setzero_ps(), _CMP_LT_OQ);
    n = _mm512_mask_sub_epi32(_mm512_add_epi32(zero, n), negative, zero, n);
    n = _mm512_max_epi32(n, _mm512_setzero_si512());  // -1 has no code
  } else {
    n = _mm512_sub_epi32(n, one);  // one comes out above 255
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtusepi32_epi8(n));
}

#else

STRATA_LANES __m256 entry(const float* table, __m256i e) {
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), e);
}

template <bool kSigned>
STRATA_LANES __m256 decode8(__m128i eight) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  const __m256i code = _mm256_cvtepu8_epi32(eight);
  const __m256i from_zero = _mm256_sub_epi32(code, _mm256_set1_epi32(kSigned ? 127 : -1));
  const __m256 n = _mm256_cvtepi32_ps(_mm256_abs_epi32(from_zero));
  const __m256i e = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_castps_si256(n), 23), _mm256_set1_epi32(127));
  const __m256 value = _mm256_fmadd_ps(entry(map.slope, e), n, entry(map.offset, e));
  if constexpr (!kSigned) return value;
  const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(from_zero), _mm256_set1_ps(-0.0f));
  const __m256i zero = _mm256_cmpeq_epi32(from_zero, _mm256_setzero_si256());
  return _mm256_andnot_ps(_mm256_castsi256_ps(zero), _mm256_or_ps(value, sign));
}
template <bool kSigned>
STRATA_LANES F32x16 decode16(const std::uint8_t* codes) {
  const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  return {decode8<kSigned>(all), decode8<kSigned>(_mm_srli_si128(all, 8))};
}

template <bool kSigned>
STRATA_LANES __m256i encode8(__m256 value) {
  constexpr const DynamicMap& map = kSigned ? kSignedMap : kUnsignedMap;
  constexpr float kLog10Of2 = 0.30103f;
  const __m256i one = _mm256_set1_epi32(1);
  const __m256 x = _mm256_min_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), value), _mm256_set1_ps(1.0f));
  const __m256 log10 = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_castps_si256(x)), _mm256_set1_ps(kLog10Of2 * 0x1p-23f),
                                       _mm256_set1_ps(-127 * kLog10Of2 + map.exponent));
  __m256i e = _mm256_max_epi32(_mm256_cvttps_epi32(log10), _mm256_set1_epi32(map.first));
  e = _mm256_add_epi32(e, _mm256_castps_si256(_mm256_cmp_ps(x, entry(map.least, e), _CMP_LT_OQ)));
  __m256i n = _mm256_cvttps_epi32(_mm256_fmadd_ps(entry(map.steps, e), x, entry(map.shift, e)));
  const __m256i low = _mm256_sllv_epi32(one, e), high = _mm256_sub_epi32(_mm256_add_epi32(low, low), one);
  n = _mm256_min_epi32(_mm256_max_epi32(n, low), high);
  if constexpr (kSigned) {
    const __m256i large = _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_set1_ps(map.least[0]), _CMP_GE_OQ));
    const __m256i negative = _mm256_castps_si256(_mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_LT_OQ));
    n = _mm256_and_si256(n, large);
    n = _mm256_sub_epi32(_mm256_xor_si256(n, negative), negative);
    return _mm256_add_epi32(_mm256_set1_epi32(127), n);
  }
  return _mm256_sub_epi32(n, one);
}
template <bool kSigned>
STRATA_LANES void encode16(F32x16 value, std::uint8_t* codes) {
  const __m256i sixteen = _mm256_packus_epi32(encode8<kSigned>(value.lo), encode8<kSigned>(value.hi));
  // What is out of the range of codes, -1 or above 255, is saturated here.
  const __m256i ordered = _mm256_permute4x64_epi64(sixteen, 0xd8);
  const __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), packed);
}

#endif

}  // namespace strata::device::cpu::STRATA_ISA
