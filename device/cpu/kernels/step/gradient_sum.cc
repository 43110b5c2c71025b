#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

template <typename T>
[[gnu::flatten]] static void add_pieces(const std::byte* const* pieces, std::size_t count, std::size_t offset,
                                        float* sum, std::size_t n, bool first) {
  const auto piece = [&](std::size_t k) { return reinterpret_cast<const T*>(pieces[k]) + offset; };
  std::size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    F32x16 s[4];
    for (int j = 0; j < 4; ++j) s[j] = first ? zeros() : load(sum + i + j * kLanes);
    for (std::size_t k = 0; k < count; ++k)
      for (int j = 0; j < 4; ++j) s[j] = s[j] + load(piece(k) + i + j * kLanes);
    for (int j = 0; j < 4; ++j) store(sum + i + j * kLanes, s[j]);
  }
  for16(n - i, [&](std::size_t j, auto some) {
    F32x16 s = first ? zeros() : load(sum + i + j, some);
    for (std::size_t k = 0; k < count; ++k) s = s + load(piece(k) + i + j, some);
    store(sum + i + j, s, some);
  });
}

// x rounded to T's numbers.
template <typename T>
STRATA_LANES F32x16 rounded(F32x16 x) {
  if constexpr (sizeof(T) == sizeof(float)) return x;
  T narrow[kLanes];
  store(narrow, x);
  return load(narrow);
}

template <typename T>
[[gnu::flatten]] static void add_runs(const std::byte* const* pieces, std::size_t count, std::size_t offset,
                                      std::size_t length, std::size_t before, float* partial, float* sum, std::size_t n,
                                      bool first) {
  for16(n, [&](std::size_t i, auto some) {
    F32x16 total = first ? zeros() : load(sum + i, some);
    F32x16 run = before > 0 ? load(partial + i, some) : zeros();
    std::size_t held = before;
    for (std::size_t k = 0; k < count; ++k) {
      run = run + load(reinterpret_cast<const T*>(pieces[k]) + offset + i, some);
      if (++held < length) continue;
      total = total + rounded<T>(run);
      run = zeros();
      held = 0;
    }
    store(sum + i, total, some);
    if (held > 0) store(partial + i, run, some);
  });
}

// Sixteen doubles, in the order of the floats they came from.
#if defined(__AVX512F__)
constexpr std::size_t kSumsInRegisters = 64;
struct F64x16 {
  __m512d lo, hi;
};
STRATA_LANES F64x16 add_square(F64x16 s, F32x16 x) {
  const Halves h = halves(x);
  const __m512d lo = _mm512_cvtps_pd(h.lo), hi = _mm512_cvtps_pd(h.hi);
  return {_mm512_fmadd_pd(lo, lo, s.lo), _mm512_fmadd_pd(hi, hi, s.hi)};
}
STRATA_LANES void store(double* p, F64x16 x) {
  _mm512_storeu_pd(p, x.lo);
  _mm512_storeu_pd(p + 8, x.hi);
}
#else
constexpr std::size_t kSumsInRegisters = 32;
struct F64x16 {
  __m256d v[4];
};
STRATA_LANES F64x16 add_square(F64x16 s, F32x16 x) {
  const __m128 q[4] = {_mm256_castps256_ps128(x.lo), _mm256_extractf128_ps(x.lo, 1), _mm256_castps256_ps128(x.hi),
                       _mm256_extractf128_ps(x.hi, 1)};
  for (int i = 0; i < 4; ++i) {
    const __m256d d = _mm256_cvtps_pd(q[i]);
    s.v[i] = _mm256_fmadd_pd(d, d, s.v[i]);
  }
  return s;
}
STRATA_LANES void store(double* p, F64x16 x) {
  for (int i = 0; i < 4; ++i) _mm256_storeu_pd(p + 4 * i, x.v[i]);
}
#endif

// Partial sum j takes elements j, j + 64, ...; then j and j + 32, j and j + 16, ... are added. A float's square is
// exact in fp64, so the fused addition rounds like a plain one. AVX2 has registers for half of the sums at a time.
template <typename T>
[[gnu::flatten]] static double square_sum(const std::byte* first, const std::byte* second) {
  constexpr std::size_t kPartials = 64, kPass = kSumsInRegisters;
  const auto* a = reinterpret_cast<const T*>(first);
  const auto* b = reinterpret_cast<const T*>(second);
  double partial[kPartials];
  for (std::size_t begin = 0; begin < kPartials; begin += kPass) {
    F64x16 s[kPass / kLanes] = {};
    for (std::size_t i = begin; i < kSquareBlock; i += kPartials)
      for (std::size_t j = 0; j < kPass / kLanes; ++j) {
        F32x16 x = zeros() + load(a + i + j * kLanes);
        if (b) x = x + load(b + i + j * kLanes);
        s[j] = add_square(s[j], x);
      }
    for (std::size_t j = 0; j < kPass / kLanes; ++j) store(partial + begin + j * kLanes, s[j]);
  }
  for (std::size_t width = kPartials / 2; width > 0; width /= 2)
    for (std::size_t j = 0; j < width; ++j) partial[j] += partial[j + width];
  return partial[0];
}

extern const GradientSumKernels gradient_sum_kernels_table = {
    .add_pieces = STRATA_BY_DTYPE(add_pieces),
    .add_runs = STRATA_BY_DTYPE(add_runs),
    .square_sum = STRATA_BY_DTYPE(square_sum),
};

}  // namespace strata::device::cpu::STRATA_ISA
