#pragma once
#include "device/cpu/kernels/attention/operands.h"

// The third form of operands: pairs of bf16 that AMX multiplies, 16 x 16 sums at a time over 16 pairs. TDPBF16PS sums
// the first and the second elements of pairs separately and adds both sums to the result, so bits differ from the other
// two forms'. A left operand is read along the sum, so sums that belong to rows of the right one are kept transposed:
// [head_dim, rows].
namespace strata::device::cpu::STRATA_ISA {

#if defined(__AMX_BF16__)

static constexpr std::size_t kTileRows = 16, kTilePairs = 16;

// During its lifetime, this thread's eight tile registers have 16 rows of 64 bytes. oneDNN's kernels configure them
// again in every call.
class TileRegisters {
 public:
  [[gnu::always_inline]] TileRegisters() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  [[gnu::always_inline]] ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// Needed because the compiler does not know that AMX intrinsics read and write memory.
[[gnu::always_inline]] static inline void memory_barrier() {
  __asm__ volatile("" ::: "memory");
}

// c[16 or 32, 16 or 32] (+)= a b over `chunks` times 16 pairs.
template <bool kTwoRows, bool kTwoColumns>
static void tile_block(std::size_t chunks, Left<Pair> a, Right<Pair> b, Sum c) {
  const std::size_t a_step = a.row * sizeof(Pair), b_step = b.row * sizeof(Pair), c_step = c.row * sizeof(float);
  float* const below = c.data + kTileRows * c.row;
  memory_barrier();
  if (c.add) {
    _tile_loadd(0, c.data, c_step);
    if constexpr (kTwoColumns) _tile_loadd(1, c.data + kLanes, c_step);
    if constexpr (kTwoRows) _tile_loadd(2, below, c_step);
    if constexpr (kTwoRows && kTwoColumns) _tile_loadd(3, below + kLanes, c_step);
  } else {
    _tile_zero(0);
    if constexpr (kTwoColumns) _tile_zero(1);
    if constexpr (kTwoRows) _tile_zero(2);
    if constexpr (kTwoRows && kTwoColumns) _tile_zero(3);
  }
  for (std::size_t i = 0; i < chunks; ++i, a.data += kTilePairs, b.data += kTilePairs * b.row) {
    _tile_loadd(4, a.data, a_step);
    _tile_loadd(6, b.data, b_step);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoColumns) {
      _tile_loadd(7, b.data + kLanes, b_step);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoRows) {
      _tile_loadd(5, a.data + kTileRows * a.row, a_step);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoColumns) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c.data, c_step);
  if constexpr (kTwoColumns) _tile_stored(1, c.data + kLanes, c_step);
  if constexpr (kTwoRows) _tile_stored(2, below, c_step);
  if constexpr (kTwoRows && kTwoColumns) _tile_stored(3, below + kLanes, c_step);
  memory_barrier();
}

// c[m, 16 n] (+)= a[m, k] b[k, 16 n]; operands are padded with zeros, or with numbers that are multiplied by zeros, to
// a multiple of 16 in k. `a` has memory for a multiple of 16 rows.
static void tile_product(std::size_t m, std::size_t n, std::size_t k, Left<Pair> a, Right<Pair> b, Sum c) {
  const std::size_t chunks = (k + kTilePairs - 1) / kTilePairs;
  for (std::size_t x = 0; x < n; x += 2) {
    const bool two = x + 1 < n;
    const Right<Pair> right{b.data + x * kLanes, b.row};
    std::size_t y = 0;
    const auto left = [&] { return Left<Pair>{a.data + y * a.row, a.row, 1}; };
    const auto sum = [&] { return Sum{c.data + y * c.row + x * kLanes, c.row, c.add}; };
    for (; y + 2 * kTileRows <= m; y += 2 * kTileRows)
      two ? tile_block<true, true>(chunks, left(), right, sum())
          : tile_block<true, false>(chunks, left(), right, sum());
    if (y + kTileRows <= m) {
      two ? tile_block<false, true>(chunks, left(), right, sum())
          : tile_block<false, false>(chunks, left(), right, sum());
      y += kTileRows;
    }
    if (y == m) continue;
    // The last rows go through `block`, because the rows of c after them do not belong to this call.
    alignas(64) float block[kTileRows * 2 * kLanes];
    const std::size_t columns = (two ? 2 : 1) * kLanes;
    const Sum to = sum();
    for (std::size_t r = 0; c.add && r < m - y; ++r)
      for (std::size_t i = 0; i < columns; i += kLanes)
        store(block + r * 2 * kLanes + i, load(to.data + r * c.row + i));
    const Sum whole{block, 2 * kLanes, c.add};
    two ? tile_block<false, true>(chunks, left(), right, whole)
        : tile_block<false, false>(chunks, left(), right, whole);
    for (std::size_t r = 0; r < m - y; ++r)
      for (std::size_t i = 0; i < columns; i += kLanes)
        store(to.data + r * c.row + i, load(block + r * 2 * kLanes + i));
  }
}

struct AmxPairs : Pairs {
  struct Mode {
    FlushSubnormals flush;
    TileRegisters registers;
  };
  static constexpr bool kTransposedSums = true;

  // The elements of a row, rounded up to whole tiles.
  static std::size_t whole(std::size_t padded) { return (padded + 31) / 32 * 32; }
  static std::size_t row(std::size_t padded) { return whole(padded) / 2; }
  static std::size_t packed(std::size_t padded) { return kTile * row(padded); }
  static RowsAndLines<Pair> take(Scratch& scratch, std::size_t padded) {
    Pair* const rows = scratch.take<Pair>(packed(padded));
    return {rows, scratch.take<Pair>(kTile * padded / 2)};
  }

  static void pack_rows(const HeadRows<bf16>& from, Pair* to, std::size_t padded) {
    const std::size_t pairs = row(padded);
    for (std::size_t r = 0; r < from.rows; ++r) {
      from.prefetch_after(r);
      for (std::size_t c = 0; c < 2 * pairs; c += 32) {
        const std::size_t n = c < from.head_dim ? from.head_dim - c : 0;
        const __mmask32 some = n < 32 ? static_cast<__mmask32>((1u << n) - 1) : ~__mmask32{0};
        _mm512_storeu_si512(to + r * pairs + c / 2, _mm512_maskz_loadu_epi16(some, from.row(r) + c));
      }
    }
    clear(to + from.rows * pairs, to + kTile * pairs);
  }
  static void pack_lines(const HeadRows<bf16>& from, Pair* to, std::size_t padded) {
    Pairs::pack_lines(from, to, padded);
    clear(to + (from.rows + 1) / 2 * padded, to + kTile / 2 * padded);
  }
  // to[c, pair of rows]. room: kTile / 2 * padded floats.
  static void pack_transposed(const HeadRows<bf16>& from, Pair* to, std::size_t padded, float* room) {
    pack_lines(from, reinterpret_cast<Pair*>(room), padded);
    transpose(kTile / 2, padded, room, padded, reinterpret_cast<float*>(to), kTile / 2);
  }
  static void pack_values(const HeadRows<bf16>& from, Pair* to, std::size_t padded, float* room) {
    pack_transposed(from, to, padded, room);
  }
  static void pack_both(const HeadRows<bf16>& from, RowsAndLines<Pair> to, std::size_t padded, float* room) {
    pack_rows(from, to.rows, padded);
    pack_transposed(from, to.lines, padded, room);
  }
  static void pack_columns(const HeadRows<bf16>& from, float, Pair* to, std::size_t padded, float* room) {
    pack_rows(from, reinterpret_cast<Pair*>(room), padded);
    transpose(kTile, row(padded), room, row(padded), reinterpret_cast<float*>(to), kTile);
  }

  static const Pair* over_keys(float* p, std::size_t keys, Scratch& scratch) {
    auto* const to = const_cast<Pair*>(Pairs::over_keys(p, keys, scratch));
    clear(to + (keys + 1) / 2 * kTile, to + kTile / 2 * kTile);
    return to;
  }
  static Weights<Pair> weights(float* p, float* ds, std::size_t queries, Scratch& scratch) {
    const Weights<Pair> w = Pairs::weights(p, ds, queries, scratch);
    for (const Pair* const over_queries : {w.p_over_queries, w.ds_over_queries}) {
      auto* const to = const_cast<Pair*>(over_queries);
      clear(to + (queries + 1) / 2 * kTile, to + kTile / 2 * kTile);
    }
    return w;
  }

  // x[row, query] *= factor[query], with kTile queries.
  static void multiply_columns(float* x, std::size_t rows, const float* factor) {
    F32x16 factors[kGroups];
    bool all_one = true;
    for (std::size_t g = 0; g < kGroups; ++g) {
      factors[g] = load(factor + g * kLanes);
      all_one = all_one && _mm512_cmp_ps_mask(factors[g].v, broadcast(1.0f).v, _CMP_NEQ_UQ) == 0;
    }
    if (all_one) return;  // no query has a new maximum
    for (float* const end = x + rows * kTile; x < end; x += kTile)
      for (std::size_t g = 0; g < kGroups; ++g) store(x + g * kLanes, load(x + g * kLanes) * factors[g]);
  }
  template <bool>
  static void product(std::size_t m, std::size_t n, std::size_t k, Left<Pair> a, Right<Pair> b, Sum c) {
    tile_product(m, n, k, a, b, c);
  }

 private:
  static void clear(Pair* from, const Pair* to) {
    for (; from < to; from += kLanes) _mm512_storeu_si512(from, _mm512_setzero_si512());
  }
};

#endif

}  // namespace strata::device::cpu::STRATA_ISA
