#pragma once
#include "device/cpu/kernels/attention/amx_tiles.h"
#include "device/cpu/kernels/attention/operands.h"
#include "device/cpu/kernels/attention/tile_pair.h"

// Operands of attention's products by AMX, and the weights between them. All are padded with zeros to whole tiles.
namespace strata::device::cpu::STRATA_ISA {

#if defined(__AMX_BF16__)

// The queries of a tile are processed in halves of 32, so that the scores of a half against a tile of keys stay in the
// first-level cache, and so that quarters of a pair of tiles after the last key that is seen cost nothing.
static constexpr std::size_t kHalf = 32;

// The mode of a whole task.
struct AmxMode {
  FlushSubnormals flush;  // TDPBF16PS flushes too; and 2^x below the normal range takes no longer than above it
  TileUnit tiles;
};

STRATA_LANES std::size_t round_up(std::size_t x, std::size_t unit) {
  return (x + unit - 1) / unit * unit;
}

// A pair of rows is a row and the one 16 rows after it, so that vectors of weights become pairs without a permutation.
struct AmxPacking {
  const std::size_t padded, pairs;  // of a row: elements; pairs, rounded up to whole tiles
  explicit AmxPacking(std::size_t padded_head_dim)
      : padded(padded_head_dim), pairs(round_up(padded_head_dim, 2 * kLanes) / 2) {}

  std::size_t rows_size() const { return kTile * pairs; }        // pairs of a tile by rows or columns
  std::size_t lines_size() const { return kTile / 2 * padded; }  // pairs of a tile by lines, or by these transposed

  // to[row, pair of elements]
  void rows(const HeadRows<bf16>& from, Pair* to) const {
    for (std::size_t r = 0; r < from.rows; ++r) {
      from.prefetch_after(r);
      for (std::size_t c = 0; c < 2 * pairs; c += 32) {
        const std::size_t n = c < from.head_dim ? from.head_dim - c : 0;
        const __mmask32 some = n < 32 ? static_cast<__mmask32>((1u << n) - 1) : ~__mmask32{0};
        _mm512_storeu_si512(to + c / 2 * kTile + r * kLanes, _mm512_maskz_loadu_epi16(some, from.row(r) + c));
      }
    }
    for (std::size_t c = 0; c < pairs; c += kLanes)
      clear(to + c * kTile + from.rows * kLanes, to + (c + kLanes) * kTile);
  }
  // to[pair of elements, row], of rows
  void columns(const Pair* rows, Pair* to) const {
    for (std::size_t c = 0; c < pairs; c += kLanes)
      for (std::size_t r = 0; r < kTile; r += kLanes)
        transpose_block(reinterpret_cast<const float*>(rows + c * kTile + r * kLanes), kLanes,
                        reinterpret_cast<float*>(to + r * pairs + c * kLanes), kLanes);
  }
  // to[pair of rows, element]; `panel` as in Panels
  void lines(const HeadRows<bf16>& from, Pair* to, std::size_t panel) const {
    for (std::size_t line = 0; line < kTile / 2; ++line, to += kLanes) {
      const std::size_t r = line / kLanes * kHalf + line % kLanes;
      if (r >= from.rows) {
        for (std::size_t c = 0; c < padded; c += kLanes)
          clear(to + c / kLanes * panel, to + c / kLanes * panel + kLanes);
        continue;
      }
      from.prefetch_after(r);
      from.prefetch_after(r + kLanes);
      const auto second = static_cast<__mmask32>(r + kLanes < from.rows ? ~0u : 0);
      Pairs::for32(from.head_dim, [&](std::size_t c, __mmask32 some) {
        const __m512i low = _mm512_maskz_loadu_epi16(some, from.row(r) + c);
        const __m512i high = _mm512_maskz_loadu_epi16(some & second, from.row(r + kLanes) + c);
        Pair* const first = to + c / kLanes * panel;
        _mm512_storeu_si512(first, Pairs::interleave<0>(low, high));
        if (padded - c >= 32) _mm512_storeu_si512(first + panel, Pairs::interleave<kLanes>(low, high));
      });
    }
  }
  // to[element, pair of rows], of lines in panels of kTile / 2 * 16
  void transposed(const Pair* lines, Pair* to) const {
    for (std::size_t c = 0; c < padded; c += kLanes)
      for (std::size_t line = 0; line < kTile / 2; line += kLanes)
        transpose_block(reinterpret_cast<const float*>(lines + c * (kTile / 2) + line * kLanes), kLanes,
                        reinterpret_cast<float*>(to + line * padded + c * kLanes), kLanes);
  }
  // These operands, and sums [element, row].
  Factors by_rows(const Pair* data) const { return {data, kTile * kLanes}; }
  Factors by_columns(const Pair* data) const { return {data, pairs * kLanes}; }
  Factors by_transposed(const Pair* data) const { return {data, padded * kLanes}; }
  Sums sums(float* data) const { return {data, padded * kLanes}; }
  // to[row, element], of sums [element, row]
  void rows_of(const float* sums, float* to) const {
    for (std::size_t r = 0; r < kTile; r += kLanes)
      transpose(padded, kLanes, sums + r * padded, kLanes, to + r * padded, padded);
  }

  static void clear(Pair* from, const Pair* to) {
    for (; from < to; from += kLanes) _mm512_storeu_si512(from, _mm512_setzero_si512());
  }
};

// After an instruction of AMX, one of the two units for FMA stops for about a thousand cycles, but both ports still
// add. So these functions prefer additions and byte shuffles to multiplications, roundings and conversions.

// exp2 (lanes16.h) for AmxMode, in which results below the normal range take no longer than others: the same
// polynomial, without selecting the lanes that are 0. If x is infinite, x - n is NaN, but VSCALEFPS gives 0 or infinity
// by n alone.
STRATA_LANES F32x16 power_of_two(F32x16 x) {
  const F32x16 magic = broadcast(0x1.8p23f);  // sums with it have no fraction
  const F32x16 n = (x + magic) - magic;
  return scale_by_power(exp2_polynomial(x - n), n);
}

// 2^(factor * score + shift). Product and sum are rounded separately, so that no weight is above 1 if -shift is the
// product for the greatest score, whatever its size.
STRATA_LANES F32x16 weight_of(F32x16 score, F32x16 factor, F32x16 shift) {
  return power_of_two(score * factor + shift);
}

STRATA_LANES F32x16 only_seen(F32x16 x, __mmask16 seen) {
  return {_mm512_maskz_mov_ps(seen, x.v)};
}

// The bits of x, whose upper halves are x rounded to bf16, half-way cases away from zero. NaN stays NaN if the lower
// half of its bits is below 0x8000, as it is for NaN from bf16 operands and from invalid operations.
STRATA_LANES __m512i rounded(F32x16 x) {
  return _mm512_add_epi32(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x8000));
}
// Pairs of the upper halves: (first[i], second[i]).
STRATA_LANES __m512i pair_up(__m512i first, __m512i second) {
  const __m512i down = _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
  return _mm512_mask_shuffle_epi8(second, 0x3333333333333333, first, down);
}

// The lanes, of 16 from `first`, that are in [begin, end).
STRATA_LANES __mmask16 lanes_between(std::size_t begin, std::size_t end, std::size_t first) {
  const auto below = [&](std::size_t x) {
    return x <= first ? 0u : x >= first + kLanes ? 0xffffu : (1u << (x - first)) - 1;
  };
  return static_cast<__mmask16>(below(end) & ~below(begin));
}

// 32 queries from `query`, of which the document has `queries`, against a tile of `keys` keys from `first`. All are
// rows of one document.
struct HalfPair {
  std::size_t query, queries, first, keys, behind, ahead;

  bool any_seen() const { return first < query + queries + ahead && first + keys + behind > query; }
  bool all_seen() const {
    return queries == kHalf && keys == kTile && first + kTile <= query + ahead + 1 &&
           query + kHalf <= first + behind + 1;
  }
  // The keys up to the last that a query sees, rounded up to 32, which is what one chunk of a product sums over. Keys
  // among them that a query does not see have the weight 0, so its output is NaN if their values are not finite.
  std::size_t end() const {
    const std::size_t last = query + queries + ahead;
    return round_up(last >= first + keys ? keys : last - first, kHalf);
  }
  // The queries that see key number `key` of the tile, of the 16 from number `from` of the half.
  [[gnu::always_inline]] __mmask16 queries_of(std::size_t key, std::size_t from) const {
    if (key >= keys) return 0;
    const std::size_t row = first + key;
    return lanes_between(row <= ahead ? 0 : row - ahead, row + behind + 1, query + from);
  }
  // The keys that query number `r` of the half sees, of the 16 from number `from` of the tile.
  [[gnu::always_inline]] __mmask16 keys_of(std::size_t r, std::size_t from) const {
    if (r >= queries) return 0;
    const std::size_t row = query + r;
    return lanes_between(row <= behind ? 0 : row - behind, smaller(row + ahead + 1, first + keys), first + from);
  }
};

#endif

}  // namespace strata::device::cpu::STRATA_ISA
