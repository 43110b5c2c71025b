#pragma once
#include "device/cpu/kernels/attention/attention_call.h"
#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/lanes/micro_product.h"

// The forms in which attention's products take their operands: as floats (Floats), to which bf16 and fp16 are widened,
// or as pairs of bf16 (Pairs), which AVX512_BF16 multiplies. bf16 has the same bits in both. The processor determines
// which of them is faster (device/cpu/isa.h); AMX has kernels of its own (amx_forward.h). A tile is kTile rows of one
// head. Packed by rows it is a left operand; as a right operand it is packed by lines if the product sums over
// its rows, by columns if over head_dim. bf16 probabilities and gradients of scores are rounded before their products,
// as FlashAttention-2 does.
namespace strata::device::cpu::STRATA_ISA {

static constexpr std::size_t kTile = kAttentionTile, kGroups = kTile / kLanes;

// Parts of one worker's scratch, taken one after another; sizes are multiples of 16 elements. Without the gap, equal
// offsets in two tiles would be whole pages apart, and loads would falsely depend on stores (4K aliasing).
struct Scratch {
  static constexpr std::size_t kGap = 16;
  float* next;
  template <typename E = float>
  E* take(std::size_t elements) {
    static_assert(sizeof(E) == sizeof(float));
    float* const taken = next;
    next += elements + kGap;
    return reinterpret_cast<E*>(taken);
  }
};

// A tile of one head: the first `rows` of the `left` rows that its document still has.
template <typename T>
struct HeadRows {
  const T* data;
  std::size_t stride, head_dim, left;
  std::size_t rows = left < kTile ? left : kTile;

  [[gnu::always_inline]] const T* row(std::size_t r) const { return data + r * stride; }
  // Rows are too far apart for the hardware prefetcher. The next tile's first rows are fetched too.
  [[gnu::always_inline]] void prefetch_after(std::size_t r) const {
    constexpr std::size_t kAhead = 16;
    if (r + kAhead >= left) return;
    for (std::size_t c = 0; c < head_dim; c += 64 / sizeof(T)) __builtin_prefetch(row(r + kAhead) + c);
  }
  // Fetches rows [begin, end), as far as the document has them, into the second-level cache.
  [[gnu::always_inline]] void prefetch(std::size_t begin, std::size_t end) const {
    for (std::size_t r = begin; r < end && r < left; ++r)
      for (std::size_t c = 0; c < head_dim; c += 64 / sizeof(T)) __builtin_prefetch(row(r) + c, 0, 2);
  }
};

// A tile as left and as right operand.
template <typename E>
struct RowsAndLines {
  E *rows, *lines;
};

// The left operands that backward makes of a pair of tiles: probabilities and gradients of scores, for sums over
// queries (row i belongs to key i) and for sums over keys.
template <typename E>
struct Weights {
  const E *p_over_queries, *ds_over_queries, *ds_over_keys;
};

// The weight of a score: e^(score + shift). One operand of the score is already scaled.
template <typename T>
struct Softmax {
  struct Mode {};  // the floating-point unit's mode, unchanged
  const float scale;

  float operand_scale() const { return scale; }  // the factor of one operand of the scores
  [[gnu::always_inline]] F32x16 shift(F32x16 maximum) const { return zeros() - maximum; }
  [[gnu::always_inline]] F32x16 shift_of_lse(float lse) const { return broadcast(-lse); }
  [[gnu::always_inline]] F32x16 weight(F32x16 score, F32x16 shift) const { return exp(score + shift); }
  [[gnu::always_inline]] float lse(float maximum, float sum) const { return maximum + __builtin_logf(sum); }
};

// In bf16 a scaled operand would be rounded, so scores are scaled in fp32: 2^(factor * score + shift).
template <>
struct Softmax<bf16> {
  using Mode = FlushSubnormals;
  const float scale;

  float operand_scale() const { return 1.0f; }
  [[gnu::always_inline]] float factor() const { return scale * kLog2E; }
  [[gnu::always_inline]] F32x16 shift(F32x16 maximum) const { return zeros() - maximum * broadcast(factor()); }
  [[gnu::always_inline]] F32x16 shift_of_lse(float lse) const { return broadcast(-lse * kLog2E); }
  // Product and sum are rounded separately, so that the greatest score has the weight 1 whatever its size.
  [[gnu::always_inline]] F32x16 weight(F32x16 score, F32x16 shift) const {
    return exp2(score * broadcast(factor()) + shift);
  }
  [[gnu::always_inline]] float lse(float maximum, float sum) const { return maximum * scale + __builtin_logf(sum); }

 private:
  static constexpr float kLog2E = 1.44269504088896341f;
};

// x rounded to bf16, to nearest even, as fp32. NaN must be quiet, as every result of arithmetic is.
#if defined(__AVX512F__)
STRATA_LANES F32x16 round_to_bf16(F32x16 x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __mmask16 number = _mm512_cmp_ps_mask(x.v, x.v, _CMP_ORD_Q);
  const __m512i sum = _mm512_mask_add_epi32(bits, number, bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  return {_mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(static_cast<int>(0xffff0000))))};
}
#else
STRATA_LANES __m256 round_to_bf16(__m256 x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(narrow_bf16(x), 16));
}
STRATA_LANES F32x16 round_to_bf16(F32x16 x) {
  return {round_to_bf16(x.lo), round_to_bf16(x.hi)};
}
#endif

template <typename T>
struct FloatOf {
  using Type = float;
};
template <>
struct FloatOf<bf16> {
  using Type = Widened;
};

template <typename T>
struct Floats : Softmax<T> {
  using Element = typename FloatOf<T>::Type;
  static constexpr std::size_t kTogether = 1;  // factors of a sum that an Element holds

  static std::size_t row(std::size_t padded) { return padded; }  // elements from one row of a left operand to the next
  static std::size_t packed(std::size_t padded) { return kTile * padded; }  // elements of a tile by columns
  static RowsAndLines<Element> take(Scratch& scratch, std::size_t padded) {
    Element* const both = scratch.take<Element>(kTile * padded);
    return {both, both};
  }

  // to[r, c] = factor * from[r, c], with zeros in missing rows and columns.
  static void pack(const HeadRows<T>& from, float factor, Element* elements, std::size_t padded) {
    auto* to = reinterpret_cast<float*>(elements);
    for (std::size_t r = 0; r < kTile; ++r, to += padded) {
      if (r < from.rows) {
        from.prefetch_after(r);
        for16(from.head_dim,
              [&](std::size_t c, auto n) { store(to + c, load(from.row(r) + c, n) * broadcast(factor)); });
      } else {
        for (std::size_t c = 0; c < padded; c += kLanes) store(to + c, zeros());
      }
    }
  }
  static void pack_rows(const HeadRows<T>& from, Element* to, std::size_t padded) { pack(from, 1.0f, to, padded); }
  static void pack_lines(const HeadRows<T>& from, Element* to, std::size_t padded) { pack(from, 1.0f, to, padded); }
  static void pack_values(const HeadRows<T>& from, Element* to, std::size_t padded, float*) {
    pack_lines(from, to, padded);
  }
  static void pack_both(const HeadRows<T>& from, RowsAndLines<Element> to, std::size_t padded, float*) {
    pack(from, 1.0f, to.rows, padded);
  }
  // room: kTile * padded floats.
  static void pack_columns(const HeadRows<T>& from, float factor, Element* to, std::size_t padded, float* room) {
    pack(from, factor, reinterpret_cast<Element*>(room), padded);
    transpose(kTile, padded, room, padded, reinterpret_cast<float*>(to), kTile);
  }

  // A weight or a score's gradient, in the form that products take.
  STRATA_LANES F32x16 as_factor(F32x16 x) {
    if constexpr (__is_same(T, bf16))
      return round_to_bf16(x);
    else
      return x;
  }
  // p[key, query] as the left operand of a sum over keys.
  static const Element* over_keys(float* p, std::size_t, Scratch&) { return reinterpret_cast<const Element*>(p); }
  // p and ds are [query, key].
  static Weights<Element> weights(float* p, float* ds, std::size_t, Scratch&) {
    const auto* const left = reinterpret_cast<const Element*>(ds);
    return {reinterpret_cast<const Element*>(p), left, left};
  }
  template <bool kRowsContiguous>
  static void product(std::size_t m, std::size_t n, std::size_t k, Left<Element> a, Right<Element> b, Sum c) {
    small_product<kRowsContiguous, Element>(m, n, k, a, b, c);
  }
};

#if defined(__AVX512BF16__)

struct Pairs : Softmax<bf16> {
  using Element = Pair;
  static constexpr std::size_t kTogether = 2;

  static std::size_t row(std::size_t padded) { return padded / 2; }
  static std::size_t packed(std::size_t padded) { return kTile * padded / 2; }
  static RowsAndLines<Pair> take(Scratch& scratch, std::size_t padded) {
    Pair* const rows = scratch.take<Pair>(kTile * padded / 2);
    return {rows, scratch.take<Pair>(kTile * padded / 2)};
  }

  static void pack_rows(const HeadRows<bf16>& from, Pair* to, std::size_t padded) {
    for (std::size_t r = 0; r < from.rows; ++r, to += padded / 2) {
      from.prefetch_after(r);
      for32(from.head_dim, [&](std::size_t c, __mmask32 some) {
        // The last columns of a padded row may be half of a register.
        const __mmask16 room = padded - c >= 32 ? 0xffff : 0xff;
        _mm512_mask_storeu_epi32(to + c / 2, room, _mm512_maskz_loadu_epi16(some, from.row(r) + c));
      });
    }
  }
  static void pack_lines(const HeadRows<bf16>& from, Pair* to, std::size_t padded) {
    for (std::size_t r = 0; r < from.rows; r += 2, to += padded) {
      from.prefetch_after(r);
      from.prefetch_after(r + 1);
      const auto second = static_cast<__mmask32>(r + 1 < from.rows ? ~0u : 0);
      for32(from.head_dim, [&](std::size_t c, __mmask32 some) {
        const __m512i even = _mm512_maskz_loadu_epi16(some, from.row(r) + c);
        const __m512i odd = _mm512_maskz_loadu_epi16(some & second, from.row(r + 1) + c);
        _mm512_storeu_si512(to + c, interleave<0>(even, odd));
        if (padded - c >= 32) _mm512_storeu_si512(to + c + kLanes, interleave<kLanes>(even, odd));
      });
    }
  }
  static void pack_values(const HeadRows<bf16>& from, Pair* to, std::size_t padded, float*) {
    pack_lines(from, to, padded);
  }
  static void pack_both(const HeadRows<bf16>& from, RowsAndLines<Pair> to, std::size_t padded, float*) {
    pack_rows(from, to.rows, padded);
    pack_lines(from, to.lines, padded);
  }
  static void pack_columns(const HeadRows<bf16>& from, float, Pair* to, std::size_t padded, float* room) {
    pack_rows(from, reinterpret_cast<Pair*>(room), padded);
    for (float* x = room + from.rows * padded / 2; x < room + kTile * padded / 2; x += 8)
      _mm256_storeu_ps(x, _mm256_setzero_ps());
    transpose(kTile, padded / 2, room, padded / 2, reinterpret_cast<float*>(to), kTile);
  }

  // Factors are rounded in pairs, below.
  STRATA_LANES F32x16 as_factor(F32x16 x) { return x; }
  static const Pair* over_keys(float* p, std::size_t keys, Scratch& scratch) {
    Pair* const to = scratch.take<Pair>(kTile * kTile / 2);
    clear_odd(p, keys);
    for (std::size_t key = 0; key < keys; key += 2)
      for (std::size_t x = 0; x < kTile; x += kLanes)
        _mm512_storeu_si512(to + key / 2 * kTile + x, in_pairs(round_two(p + key * kTile + x)));
    return to;
  }
  static Weights<Pair> weights(float* p, float* ds, std::size_t queries, Scratch& scratch) {
    Pair* const p_over_queries = scratch.take<Pair>(kTile * kTile / 2);
    Pair* const ds_over_queries = scratch.take<Pair>(kTile * kTile / 2);
    Pair* const ds_over_keys = scratch.take<Pair>(kTile * kTile / 2);
    clear_odd(p, queries);
    clear_odd(ds, queries);
    for (std::size_t query = 0; query < queries; query += 2) {
      for (std::size_t x = 0; x < kTile; x += kLanes) {
        const std::size_t at = query / 2 * kTile + x;
        _mm512_storeu_si512(p_over_queries + at, in_pairs(round_two(p + query * kTile + x)));
        const __m512i both = round_two(ds + query * kTile + x);
        _mm512_storeu_si512(ds_over_queries + at, in_pairs(both));
        auto* const row = reinterpret_cast<__m256i*>(ds_over_keys + (query * kTile + x) / 2);
        _mm256_storeu_si256(row, _mm512_castsi512_si256(both));
        _mm256_storeu_si256(row + kTile / 16, _mm512_extracti64x4_epi64(both, 1));
      }
    }
    return {p_over_queries, ds_over_queries, ds_over_keys};
  }
  template <bool kRowsContiguous>
  static void product(std::size_t m, std::size_t n, std::size_t k, Left<Pair> a, Right<Pair> b, Sum c) {
    small_product<kRowsContiguous, Pair>(m, n, k, a, b, c);
  }

  // Calls f(i, mask) for every 32 elements of [0, n). The last mask has only the elements that exist.
  template <typename F>
  STRATA_LANES void for32(std::size_t n, F&& f) {
    std::size_t i = 0;
    for (; i + 32 <= n; i += 32) f(i, ~__mmask32{0});
    if (i < n) f(i, static_cast<__mmask32>((1u << (n - i)) - 1));
  }

  // Pairs (even[i], odd[i]) for sixteen i, starting at kFirst.
  template <int kFirst>
  STRATA_LANES __m512i interleave(__m512i even, __m512i odd) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i from = _mm512_add_epi32(lanes, _mm512_set1_epi32(kFirst));
    return _mm512_permutex2var_epi16(
        even, _mm512_or_si512(from, _mm512_slli_epi32(_mm512_add_epi32(from, _mm512_set1_epi32(32)), 16)), odd);
  }

 private:
  // Sixteen elements of a row of a tile, then the sixteen below them, as bf16.
  STRATA_LANES __m512i round_two(const float* x) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(load(x + kTile).v, load(x).v));
  }
  STRATA_LANES __m512i in_pairs(__m512i two) {
    return interleave<0>(two, _mm512_castsi256_si512(_mm512_extracti64x4_epi64(two, 1)));
  }
  // Zeros the row after an odd number of rows, because it shares pairs with the last one.
  STRATA_LANES void clear_odd(float* tile, std::size_t rows) {
    if (rows % 2 == 1)
      for (std::size_t x = 0; x < kTile; x += kLanes) store(tile + rows * kTile + x, zeros());
  }
};

#endif

}  // namespace strata::device::cpu::STRATA_ISA
