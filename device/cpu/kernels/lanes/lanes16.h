#pragma once
// GCC 12 warns about the undefined pass-through operands inside its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

#include "device/numeric/dtype.h"

// Sixteen floats: one AVX-512 register or two AVX2 registers. Kernels are written once on top of this, so both
// instruction sets add in the same order and give the same bits. Loads and stores convert from and to any dtype. At the
// end of a row, missing elements are loaded as zeros and not stored.
namespace strata::device::cpu::STRATA_ISA {

#define STRATA_LANES [[gnu::always_inline]] static inline

inline constexpr std::size_t kLanes = 16;

// How many of the sixteen elements exist. "All" is a separate type, so that full steps need no test.
struct Full {};
struct Part {
  std::size_t n;  // 1 .. 15
};

#if defined(__AVX512F__)

struct F32x16 {
  __m512 v;
};
STRATA_LANES F32x16 broadcast(float x) {
  return {_mm512_set1_ps(x)};
}
STRATA_LANES F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
STRATA_LANES F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
STRATA_LANES F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
STRATA_LANES F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
// a * b + c and c - a * b, rounded once.
STRATA_LANES F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
STRATA_LANES F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
}
// Both return b if either operand is NaN.
STRATA_LANES F32x16 min(F32x16 a, F32x16 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
STRATA_LANES F32x16 max(F32x16 a, F32x16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
STRATA_LANES F32x16 sqrt(F32x16 a) {
  return {_mm512_sqrt_ps(a.v)};
}
STRATA_LANES F32x16 nearest(F32x16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT)};
}
// a * 2^n for integer n, rounded once.
STRATA_LANES F32x16 scale_by_power(F32x16 a, F32x16 n) {
  return {_mm512_scalef_ps(a.v, n.v)};
}
// a if x is above the bound or NaN, otherwise +0.
STRATA_LANES F32x16 keep_above(F32x16 a, F32x16 x, float bound) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_NLE_UQ), a.v)};
}
// a if words[lane] >= threshold, otherwise +0.
STRATA_LANES F32x16 keep_from(F32x16 a, const std::uint32_t* words, std::uint32_t threshold) {
  const __mmask16 keep =
      _mm512_cmpge_epu32_mask(_mm512_loadu_si512(words), _mm512_set1_epi32(static_cast<int>(threshold)));
  return {_mm512_maskz_mov_ps(keep, a.v)};
}
// The number of infinite or NaN elements.
STRATA_LANES unsigned nonfinite(F32x16 a) {
  return static_cast<unsigned>(__builtin_popcount(_mm512_fpclass_ps_mask(a.v, 0x99)));
}

STRATA_LANES __mmask16 mask_of(Part part) {
  return static_cast<__mmask16>((1u << part.n) - 1);
}
STRATA_LANES F32x16 widen_bf16(__m256i x) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16))};
}
// Rounds to nearest even with integer operations, subnormals too: VCVTNEPS2BF16 would flush them.
STRATA_LANES __m256i narrow_bf16(F32x16 x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

STRATA_LANES F32x16 load(const float* p, Full = {}) {
  return {_mm512_loadu_ps(p)};
}
STRATA_LANES F32x16 load(const float* p, Part n) {
  return {_mm512_maskz_loadu_ps(mask_of(n), p)};
}
STRATA_LANES F32x16 load(const bf16* p, Full = {}) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
STRATA_LANES F32x16 load(const bf16* p, Part n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(mask_of(n), p));
}
STRATA_LANES F32x16 load(const fp16* p, Full = {}) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
STRATA_LANES F32x16 load(const fp16* p, Part n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask_of(n), p))};
}
STRATA_LANES void store(float* p, F32x16 x, Full = {}) {
  _mm512_storeu_ps(p, x.v);
}
STRATA_LANES void store(float* p, F32x16 x, Part n) {
  _mm512_mask_storeu_ps(p, mask_of(n), x.v);
}
STRATA_LANES void store(bf16* p, F32x16 x, Full = {}) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(x));
}
STRATA_LANES void store(bf16* p, F32x16 x, Part n) {
  _mm256_mask_storeu_epi16(p, mask_of(n), narrow_bf16(x));
}
STRATA_LANES void store(fp16* p, F32x16 x, Full = {}) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
STRATA_LANES void store(fp16* p, F32x16 x, Part n) {
  _mm256_mask_storeu_epi16(p, mask_of(n), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}

struct Halves {
  __m256 lo, hi;
};
STRATA_LANES Halves halves(F32x16 x) {
  return {_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1)};
}

#else

struct F32x16 {
  __m256 lo, hi;
};
STRATA_LANES F32x16 broadcast(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
STRATA_LANES F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
STRATA_LANES F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
STRATA_LANES F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
STRATA_LANES F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
STRATA_LANES F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
STRATA_LANES F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
STRATA_LANES F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
STRATA_LANES F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
STRATA_LANES F32x16 sqrt(F32x16 a) {
  return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
STRATA_LANES F32x16 nearest(F32x16 a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}
// Two exact steps and one rounding, so results below the normal range are correct.
STRATA_LANES __m256 scale_by_power(__m256 a, __m256 n) {
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
  const __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256 second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(a, first), second);
}
STRATA_LANES F32x16 scale_by_power(F32x16 a, F32x16 n) {
  return {scale_by_power(a.lo, n.lo), scale_by_power(a.hi, n.hi)};
}
STRATA_LANES F32x16 keep_above(F32x16 a, F32x16 x, float bound) {
  const __m256 from = _mm256_set1_ps(bound);
  return {_mm256_and_ps(a.lo, _mm256_cmp_ps(x.lo, from, _CMP_NLE_UQ)),
          _mm256_and_ps(a.hi, _mm256_cmp_ps(x.hi, from, _CMP_NLE_UQ))};
}
STRATA_LANES __m256 keep_from(__m256 a, const std::uint32_t* words, std::uint32_t threshold) {
  const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
  const __m256i keep = _mm256_cmpeq_epi32(_mm256_max_epu32(w, _mm256_set1_epi32(static_cast<int>(threshold))), w);
  return _mm256_and_ps(a, _mm256_castsi256_ps(keep));
}
STRATA_LANES F32x16 keep_from(F32x16 a, const std::uint32_t* words, std::uint32_t threshold) {
  return {keep_from(a.lo, words, threshold), keep_from(a.hi, words + 8, threshold)};
}
STRATA_LANES unsigned nonfinite(F32x16 a) {
  const __m256i infinite = _mm256_set1_epi32(0x7f800000);
  const __m256i lo = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(a.lo), infinite), infinite);
  const __m256i hi = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(a.hi), infinite), infinite);
  return static_cast<unsigned>(__builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(lo)))) +
                               __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(hi)))));
}

STRATA_LANES __m256 widen_bf16(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
STRATA_LANES __m256i narrow_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}

STRATA_LANES F32x16 load(const float* p, Full = {}) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
STRATA_LANES F32x16 load(const bf16* p, Full = {}) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {widen_bf16(_mm_loadu_si128(q)), widen_bf16(_mm_loadu_si128(q + 1))};
}
STRATA_LANES F32x16 load(const fp16* p, Full = {}) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
STRATA_LANES void store(float* p, F32x16 x, Full = {}) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
STRATA_LANES void store(bf16* p, F32x16 x, Full = {}) {
  const __m256i packed = _mm256_packus_epi32(narrow_bf16(x.lo), narrow_bf16(x.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
STRATA_LANES void store(fp16* p, F32x16 x, Full = {}) {
  auto* q = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(q, _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
}
template <typename T>
STRATA_LANES F32x16 load(const T* p, Part part) {
  T all[kLanes] = {};
  for (std::size_t i = 0; i < part.n; ++i) all[i] = p[i];
  return load(all);
}
template <typename T>
STRATA_LANES void store(T* p, F32x16 x, Part part) {
  T all[kLanes];
  store(all, x);
  for (std::size_t i = 0; i < part.n; ++i) p[i] = all[i];
}

struct Halves {
  __m256 lo, hi;
};
STRATA_LANES Halves halves(F32x16 x) {
  return {x.lo, x.hi};
}

#endif

STRATA_LANES F32x16 zeros() {
  return broadcast(0.0f);
}
// Sets the lanes beyond n to `fill`. Maxima need this, because a padding zero would count.
STRATA_LANES F32x16 only(F32x16 x, float, Full) {
  return x;
}
STRATA_LANES F32x16 only(F32x16 x, float fill, Part part) {
  float all[kLanes];
  store(all, x);
  for (std::size_t i = part.n; i < kLanes; ++i) all[i] = fill;
  return load(all);
}

// The sum of all sixteen: lane i and lane i + 8, then i + 4, 2, 1.
STRATA_LANES float sum(F32x16 x) {
  const Halves h = halves(x);
  const __m256 eight = _mm256_add_ps(h.lo, h.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
STRATA_LANES float maximum(F32x16 x) {
  const Halves h = halves(x);
  const __m256 eight = _mm256_max_ps(h.lo, h.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// e^x within 1.5 ulp over the whole range (tests/device/ops/losses/losses_test.cc): subnormals, 0, infinity; NaN stays
// NaN. Uses Cody-Waite reduction and the polynomial of Cephes' expf. Lanes with the result 0, such as those of masked
// scores, compute e^0 instead, because an underflow takes a processor many times as long.
STRATA_LANES F32x16 exp(F32x16 x) {
  constexpr float kZero = -105;
  const F32x16 given = x;
  x = min(broadcast(90.0f), keep_above(x, x, kZero));
  const F32x16 n = nearest(x * broadcast(1.44269504088896341f));
  const F32x16 r = fnma(n, broadcast(-2.12194440e-4f), fnma(n, broadcast(0.693359375f), x));
  F32x16 p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = fma(p, r * r, r) + broadcast(1.0f);
  return keep_above(scale_by_power(p, n), given, kZero);
}

// 2^r in [-1/2, 1/2], with a relative error of at most 1.7e-7: the best polynomial of degree 5 that is 1 at 0.
STRATA_LANES F32x16 exp2_polynomial(F32x16 r) {
  F32x16 p = broadcast(0.0013264727f);
  p = fma(p, r, broadcast(0.009671513f));
  p = fma(p, r, broadcast(0.055507336f));
  p = fma(p, r, broadcast(0.24022242f));
  p = fma(p, r, broadcast(0.693147f));
  return fma(p, r, broadcast(1.0f));
}
// 2^x for x up to 0, with a relative error of at most 1.7e-7; 0 from -150 down; NaN stays NaN.
STRATA_LANES F32x16 exp2(F32x16 x) {
  constexpr float kZero = -150;
  const F32x16 given = x;
  x = keep_above(x, x, kZero);  // as exp does
  const F32x16 n = nearest(x), r = x - n;
  return keep_above(scale_by_power(exp2_polynomial(r), n), given, kZero);
}

// Calls f(i, Full) for every sixteen of [0, n), and f(i, Part) for the rest.
template <typename F>
STRATA_LANES void for16(std::size_t n, F&& f) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, Full{});
  if (i < n) f(i, Part{n - i});
}

// The same, with the number (0 .. 3) of the accumulator that the step uses: four independent chains hide the latency of
// an addition.
template <typename F>
STRATA_LANES void for16_by4(std::size_t n, F&& f) {
  std::size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    f(i, Full{}, 0);
    f(i + kLanes, Full{}, 1);
    f(i + 2 * kLanes, Full{}, 2);
    f(i + 3 * kLanes, Full{}, 3);
  }
  if (i + kLanes <= n) f(i, Full{}, 0), i += kLanes;
  if (i + kLanes <= n) f(i, Full{}, 1), i += kLanes;
  if (i + kLanes <= n) f(i, Full{}, 2), i += kLanes;
  if (i < n) f(i, Part{n - i}, 3);
}

// The three versions of a kernel that is a template over the element type, in the order of DType.
#define STRATA_BY_DTYPE(kernel) \
  { kernel<float>, kernel<::strata::device::bf16>, kernel<::strata::device::fp16> }
// The same for a kernel that is also a template over F.
#define STRATA_OF(F, kernel) \
  { kernel<F, float>, kernel<F, ::strata::device::bf16>, kernel<F, ::strata::device::fp16> }

}  // namespace strata::device::cpu::STRATA_ISA
