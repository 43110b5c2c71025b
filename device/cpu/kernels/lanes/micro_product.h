#pragma once
#include "device/cpu/kernels/lanes/lanes16.h"

// Products of small matrices that fit into a core's own caches: c[m, 16 n] (+)= a[m, k] b[k, 16 n] in fp32, cut into
// blocks that live in registers. Every element of c is summed over k in one order, whatever the block it falls into.
namespace strata::device::cpu::STRATA_ISA {

// An element of an operand is a float; a bf16 that was widened to one; or, with AVX512_BF16, two bf16 that follow each
// other along k, the lower half first. In both forms the later of two bf16 is added first, as VDPBF16PS does. Sums of
// widened operands have the same bits as its sums if subnormals count as zeros (FlushSubnormals).
STRATA_LANES F32x16 multiply_add(float x, F32x16 line, F32x16 sum) {
  return fma(broadcast(x), line, sum);
}
STRATA_LANES F32x16 load_line(const float* p) {
  return load(p);
}
struct Widened {
  float value;
};
STRATA_LANES F32x16 multiply_add(Widened x, F32x16 line, F32x16 sum) {
  return fma(broadcast(x.value), line, sum);
}
STRATA_LANES F32x16 load_line(const Widened* p) {
  return load(&p->value);
}
// During its lifetime, this thread treats subnormal operands and results as zeros.
class FlushSubnormals {
 public:
  [[gnu::always_inline]] FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  [[gnu::always_inline]] ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned before_;
};
#if defined(__AVX512BF16__)
struct Pair {
  std::uint32_t halves;
};
STRATA_LANES __m512i load_line(const Pair* p) {
  return _mm512_loadu_si512(p);
}
// Flushes subnormals to zero and rounds to nearest even after each of the two additions.
STRATA_LANES F32x16 multiply_add(Pair x, __m512i line, F32x16 sum) {
  const __m512i both = _mm512_set1_epi32(static_cast<int>(x.halves));
  return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(both), reinterpret_cast<__m512bh>(line))};
}
#endif

// An operand whose element (i, p) is at data[i * row + p * column].
template <typename E>
struct Left {
  const E* data;
  std::size_t row, column;
};
template <typename E>
struct Right {
  const E* data;
  std::size_t row;
};
struct Sum {
  float* data;
  std::size_t row;
  bool add;                       // adds to c; otherwise overwrites it
  const float* factor = nullptr;  // one factor per row, which multiplies the old value
};

template <int M, int N, typename E>
STRATA_LANES void register_block(std::size_t k, Left<E> a, Right<E> b, Sum c) {
  F32x16 sum[M][N];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) sum[i][j] = c.add ? load(c.data + i * c.row + j * kLanes) : zeros();
    if (c.factor)
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sum[i][j] = sum[i][j] * broadcast(c.factor[i]);
  }
  const auto add = [&](const E* left, const E* right) __attribute__((always_inline)) {
    decltype(load_line(right)) line[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) line[j] = load_line(right + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const E x = left[i * a.row];
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sum[i][j] = multiply_add(x, line[j], sum[i][j]);
    }
  };
  const E* left = a.data;
  const E* right = b.data;
  if constexpr (__is_same(E, Widened)) {
    for (; k >= 2; k -= 2, left += 2 * a.column, right += 2 * b.row) {
      add(left + a.column, right + b.row);
      add(left, right);
    }
    if (k == 1) {
      // In a Pair, +0 follows the last element, and -0 + 0 is +0.
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < N; ++j) sum[i][j] = sum[i][j] + zeros();
      add(left, right);
    }
  } else {
    for (std::size_t p = 0; p < k; ++p, left += a.column, right += b.row) add(left, right);
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) store(c.data + i * c.row + j * kLanes, sum[i][j]);
}

// Takes rows in blocks of M, and the rest in blocks of 4, 2 and 1. Contiguous: a.column, or otherwise a.row, is 1.
template <int M, int N, bool kRowsContiguous, typename E>
static void column_block(std::size_t m, std::size_t k, Left<E> a, Right<E> b, Sum c) {
  if (kRowsContiguous)
    a.column = 1;
  else
    a.row = 1;
  const auto step = [&](std::size_t rows) {
    a.data += rows * a.row;
    c.data += rows * c.row;
    if (c.factor) c.factor += rows;
    m -= rows;
  };
  for (; m >= M; step(M)) register_block<M, N>(k, a, b, c);
  if constexpr (M > 4)
    if (m >= 4) register_block<4, N>(k, a, b, c), step(4);
  if (m >= 2) register_block<2, N>(k, a, b, c), step(2);
  if (m >= 1) register_block<1, N>(k, a, b, c);
}

template <bool kRowsContiguous, typename E>
static void small_product(std::size_t m, std::size_t n, std::size_t k, Left<E> a, Right<E> b, Sum c) {
#if defined(__AVX512F__)
  // 24 of 32 registers hold sums.
  for (; n >= 4; n -= 4, b.data += 4 * kLanes, c.data += 4 * kLanes) column_block<6, 4, kRowsContiguous>(m, k, a, b, c);
  if (n == 3) column_block<8, 3, kRowsContiguous>(m, k, a, b, c);
  if (n == 2) column_block<8, 2, kRowsContiguous>(m, k, a, b, c);
  if (n == 1) column_block<8, 1, kRowsContiguous>(m, k, a, b, c);
#else
  // 12 of 16 registers hold sums.
  for (; n >= 1; --n, b.data += kLanes, c.data += kLanes) column_block<6, 1, kRowsContiguous>(m, k, a, b, c);
#endif
}

#if defined(__AVX512F__)
// A block of 16 x 16. Each of 16 vectors has four elements of rows i, i + 4, i + 8 and i + 12, so that four-by-four
// transposes within quarters of vectors complete the block.
STRATA_LANES void transpose_block(const float* from, std::size_t from_row, float* to, std::size_t to_row) {
#pragma GCC unroll 4
  for (std::size_t j = 0; j < kLanes; j += 4) {
    __m512 r[4];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const float* const f = from + i * from_row + j;
      r[i] = _mm512_castps128_ps512(_mm_loadu_ps(f));
      r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(f + 4 * from_row), 1);
      r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(f + 8 * from_row), 2);
      r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(f + 12 * from_row), 3);
    }
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r[0], r[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(r[0], r[1]));
    const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(r[2], r[3]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(r[2], r[3]));
    float* const t = to + j * to_row;
    _mm512_storeu_ps(t, _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)));
    _mm512_storeu_ps(t + to_row, _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)));
    _mm512_storeu_ps(t + 2 * to_row, _mm512_castpd_ps(_mm512_unpacklo_pd(b, d)));
    _mm512_storeu_ps(t + 3 * to_row, _mm512_castpd_ps(_mm512_unpackhi_pd(b, d)));
  }
}
#endif

// to[j * to_row + i] = from[i * from_row + j] for i < rows, j < columns, multiples of 4.
static void transpose(std::size_t rows, std::size_t columns, const float* from, std::size_t from_row, float* to,
                      std::size_t to_row) {
#if defined(__AVX512F__)
  if (rows % kLanes == 0 && columns % kLanes == 0) {
    for (std::size_t i = 0; i < rows; i += kLanes)
      for (std::size_t j = 0; j < columns; j += kLanes)
        transpose_block(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
    return;
  }
#endif
  for (std::size_t i = 0; i < rows; i += 4) {
    for (std::size_t j = 0; j < columns; j += 4) {
      const float* f = from + i * from_row + j;
      __m128 r0 = _mm_loadu_ps(f), r1 = _mm_loadu_ps(f + from_row);
      __m128 r2 = _mm_loadu_ps(f + 2 * from_row), r3 = _mm_loadu_ps(f + 3 * from_row);
      _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
      float* t = to + j * to_row + i;
      _mm_storeu_ps(t, r0);
      _mm_storeu_ps(t + to_row, r1);
      _mm_storeu_ps(t + 2 * to_row, r2);
      _mm_storeu_ps(t + 3 * to_row, r3);
    }
  }
}

}  // namespace strata::device::cpu::STRATA_ISA
