#pragma once
#include "device/cpu/kernels/attention/amx_operands.h"
#include "device/cpu/kernels/attention/turns.h"
#include "device/cpu/kernels/lanes/philox16.h"

namespace strata::device::cpu::STRATA_ISA {

#if defined(__AMX_BF16__)

// The state of a tile of keys while it passes over the queries.
struct AmxBackwardTile {
  std::size_t first, keys;
  Pair *columns, *value_columns;
  float *dk, *dv;  // [head_dim, key]
};

// The weights of a group of tiles of queries against a tile of keys, and the gradients of their scores, in bf16.
struct AmxWeights {
  Pair *p_over_queries, *ds_over_queries;  // [pair of queries, key]
  std::size_t panel;                       // of these two
  Pair* ds_over_keys;                      // [tile of queries][query, pair of keys]
  std::size_t ds_tile;                     // pairs from a tile of queries to the next

  [[gnu::always_inline]] Pair* over_keys_at(std::size_t row, std::size_t column) const {
    return ds_over_keys + row / kTile * ds_tile + column / kHalf * kTile * kLanes + row % kTile * kLanes;
  }
  // Those of 32 queries from `row` and of 32 keys from `column`.
  void clear(std::size_t row, std::size_t column) const {
    Pair* const both[] = {p_over_queries, ds_over_queries};
    for (std::size_t key = column; key < column + kHalf; key += kLanes)
      for (Pair* const to : both) {
        Pair* const from = to + key / kLanes * panel + row / 2 * kLanes;
        AmxPacking::clear(from, from + kHalf / 2 * kLanes);
      }
    Pair* const over_keys = over_keys_at(row, column);
    AmxPacking::clear(over_keys, over_keys + kHalf * kLanes);
  }
};

// Computes the weights from scores s[query, key], and from ds = d_o v^T the gradients of the scores, for 32 keys from
// number x of the tile. The half begins at `row` of `to`.
template <bool kMasked, bool kDropout>
static void amx_weights(const AttentionCall& c, const AttentionRows& document, std::size_t head, const HalfPair& at,
                        std::size_t x, const float* s, const float* ds, std::size_t row, const AmxWeights& to,
                        std::uint32_t* words) {
  const Softmax<bf16> operands{c.scale};
  const F32x16 factor = broadcast(operands.factor());
  const std::size_t statistics = (document.batch * c.heads + head) * c.seq + document.first + at.query;
  for (std::size_t r = 0; r < kLanes; ++r) {
    F32x16 shift[2], mean[2];
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t number = r + i * kLanes;
      const std::size_t query = statistics + (kMasked ? smaller(number, at.queries - 1) : number);
      shift[i] = operands.shift_of_lse(c.lse[query]);
      mean[i] = broadcast(c.delta[query]);
      if constexpr (kDropout)
        if (number < at.queries)
          __builtin_memcpy(
              words + kWords + i * kHalf,
              random_range(c.random, score_index(c, document, head, at.query + number, at.first + x), kHalf, words),
              kHalf * sizeof(std::uint32_t));
    }
    __m512i p[2][2], gradient[2][2];  // of a query, of 16 keys
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
#pragma GCC unroll 2
      for (std::size_t g = 0; g < 2; ++g) {
        const std::size_t key = x + g * kLanes, from = (r + i * kLanes) * kLanes + g * kHalf * kLanes;
        F32x16 weight = weight_of(load(s + from), factor, shift[i]), of_weight = load(ds + from);
        if constexpr (kMasked) weight = only_seen(weight, at.keys_of(r + i * kLanes, key));
        if constexpr (kDropout) {
          const std::uint32_t* const drawn = words + kWords + i * kHalf + g * kLanes;
          of_weight = keep_from(of_weight * broadcast(c.keep_scale), drawn, c.threshold);
          p[i][g] = rounded(keep_from(weight * broadcast(c.keep_scale), drawn, c.threshold));
        } else {
          p[i][g] = rounded(weight);
        }
        gradient[i][g] = rounded(weight * (of_weight - mean[i]));
      }
    }
#pragma GCC unroll 2
    for (std::size_t g = 0; g < 2; ++g) {
      const std::size_t pair = (x / kLanes + g) * to.panel + (row / 2 + r) * kLanes;
      _mm512_storeu_si512(to.p_over_queries + pair, pair_up(p[0][g], p[1][g]));
      _mm512_storeu_si512(to.ds_over_queries + pair, pair_up(gradient[0][g], gradient[1][g]));
    }
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i)
      _mm512_storeu_si512(to.over_keys_at(row + r + i * kLanes, x), pair_up(gradient[i][0], gradient[i][1]));
  }
}

// A task: its tiles of keys pass over the queries that see them, head by head, in groups of tiles that are packed
// together.
class AmxBackward {
 public:
  AmxBackward(TileUnit& unit, const AttentionCall& c, const AttentionRows& document, std::size_t kv_head,
              std::size_t begin, std::size_t most, float* memory)
      : unit_(unit),
        c_(c),
        document_(document),
        packing_(c.padded()),
        kv_head_(kv_head),
        first_row_(document.batch * c.seq + document.first),
        begin_(begin),
        end_(smaller(begin + most * kTile, document.rows)),
        key_tiles_((end_ - begin + kTile - 1) / kTile),
        query_tiles_(amx_backward_query_tiles(packing_.padded, c.seq)),
        scratch_{memory} {
    const std::size_t squares = query_tiles_ * kTile * kTile;
    queries_ = scratch_.take<Pair>(query_tiles_ * packing_.rows_size());
    outputs_ = scratch_.take<Pair>(query_tiles_ * packing_.rows_size());
    queries_transposed_ = scratch_.take<Pair>(query_tiles_ * packing_.lines_size());
    outputs_transposed_ = scratch_.take<Pair>(query_tiles_ * packing_.lines_size());
    scores_ = scratch_.take(kHalf * kHalf);
    products_ = scratch_.take(kHalf * kHalf);
    weights_ = {scratch_.take<Pair>(squares / 2), scratch_.take<Pair>(squares / 2), query_tiles_ * kTile / 2 * kLanes,
                scratch_.take<Pair>(squares / 2 * key_tiles_), key_tiles_ * kTile / 2 * kTile};
    words_ = scratch_.take<std::uint32_t>(kWords + 2 * kHalf);
    lines_ = scratch_.take<Pair>(key_tiles_ * packing_.lines_size());
    for (std::size_t i = 0; i < key_tiles_; ++i) pack_keys(i);
  }

  // Not inlined, so that no arithmetic moves across the change of mode (AmxMode).
  [[gnu::noinline]] void run() {
    const std::size_t group = c_.heads / c_.kv_heads;
    const std::size_t first = begin_ <= c_.ahead ? 0 : (begin_ - c_.ahead) / kTile * kTile;
    const std::size_t last = smaller(document_.rows, end_ + c_.behind);
    for (std::size_t head = kv_head_ * group; head < (kv_head_ + 1) * group; ++head) {
      for (std::size_t row = first; row < last; row += query_tiles_ * kTile) {
        const Queries queries{head, row, smaller(row + query_tiles_ * kTile, last), last};
        for (std::size_t tile = row; tile < queries.end; tile += kTile) pack_queries(queries, tile);
        for (std::size_t i = 0; i < key_tiles_; ++i) add_key_gradients(queries, i);
        for (std::size_t tile = row; tile < queries.end; tile += kTile) add_query_gradients(queries, tile);
      }
    }
    const std::size_t k_head = first_row_ * c_.k_stride + kv_head_ * c_.head_dim;
    const std::size_t v_head = first_row_ * c_.v_stride + kv_head_ * c_.head_dim;
    for (const AmxBackwardTile* t = tiles_; t < tiles_ + key_tiles_; ++t) {
      write(*t, t->dk, c_.scale, c_.dk, k_head + t->first * c_.k_stride, c_.k_stride);
      write(*t, t->dv, 1.0f, c_.dv, v_head + t->first * c_.v_stride, c_.v_stride);
    }
  }

 private:
  // A group of tiles of queries of one head: rows [begin, end) of the document. The last group ends at `last`.
  struct Queries {
    std::size_t head, begin, end, last;
  };
  static constexpr std::size_t kPanelOfTile = kTile / 2 * kLanes;  // of a tile by lines

  HeadRows<bf16> queries_from(std::size_t head, std::size_t row) const {
    return {static_cast<const bf16*>(c_.q) + (first_row_ + row) * c_.q_stride + head * c_.head_dim, c_.q_stride,
            c_.head_dim, document_.rows - row};
  }
  HeadRows<bf16> outputs_from(std::size_t head, std::size_t row) const {
    const std::size_t width = c_.heads * c_.head_dim;
    return {static_cast<const bf16*>(c_.d_o) + (first_row_ + row) * width + head * c_.head_dim, width, c_.head_dim,
            document_.rows - row};
  }

  void pack_keys(std::size_t i) {
    const std::size_t first = begin_ + i * kTile, left = end_ - first, row = first_row_ + first;
    AmxBackwardTile& t = tiles_[i];
    t = {first,
         smaller(kTile, left),
         scratch_.take<Pair>(packing_.rows_size()),
         scratch_.take<Pair>(packing_.rows_size()),
         scratch_.take(kTile * packing_.padded),
         scratch_.take(kTile * packing_.padded)};
    const std::size_t head = kv_head_ * c_.head_dim;
    const HeadRows<bf16> k{static_cast<const bf16*>(c_.k) + row * c_.k_stride + head, c_.k_stride, c_.head_dim, left};
    const HeadRows<bf16> v{static_cast<const bf16*>(c_.v) + row * c_.v_stride + head, c_.v_stride, c_.head_dim, left};
    auto* const room = reinterpret_cast<Pair*>(t.dk);
    packing_.rows(k, room);
    packing_.columns(room, t.columns);
    packing_.rows(v, room);
    packing_.columns(room, t.value_columns);
    packing_.lines(k, lines_ + i * kPanelOfTile, key_tiles_ * kPanelOfTile);
    fill(t.dk, 0, kTile * packing_.padded, 0.0f);
    fill(t.dv, 0, kTile * packing_.padded, 0.0f);
  }

  void pack_queries(const Queries& group, std::size_t row) {
    const std::size_t tile = (row - group.begin) / kTile;
    auto* const lines = reinterpret_cast<Pair*>(scratch_.next);
    const auto pack = [&](const HeadRows<bf16>& from, Pair* rows, Pair* transposed) {
      packing_.rows(from, rows + tile * packing_.rows_size());
      packing_.lines(from, lines, kPanelOfTile);
      packing_.transposed(lines, transposed + tile * packing_.lines_size());
    };
    pack(queries_from(group.head, row), queries_, queries_transposed_);
    pack(outputs_from(group.head, row), outputs_, outputs_transposed_);
  }

  // Fetches this tile of keys' share of the next group's rows, of the half that begins at `row` of the group.
  void prefetch_queries(const Queries& group, std::size_t row, std::size_t i) const {
    if (group.end + row >= group.last) return;
    const std::size_t first = row + i * kHalf / key_tiles_, last = row + (i + 1) * kHalf / key_tiles_;
    queries_from(group.head, group.end).prefetch(first, last);
    outputs_from(group.head, group.end).prefetch(first, last);
  }

  // The weights of tile i of keys for 32 queries, which begin at `row` of the group.
  void weigh(std::size_t head, const HalfPair& at, std::size_t row, std::size_t i, std::size_t keys,
             const AmxWeights& w) {
    const AmxBackwardTile& t = tiles_[i];
    const std::size_t tile = row / kTile * packing_.rows_size();
    for (std::size_t x = 0; x < keys; x += kHalf) {
      unit_.multiply<false>(kHalf, kHalf, packing_.pairs, packing_.by_rows(queries_ + tile).from(row % kTile, 0),
                            packing_.by_columns(t.columns).from(0, x), {scores_, kHalf * kLanes});
      unit_.multiply<false>(kHalf, kHalf, packing_.pairs, packing_.by_rows(outputs_ + tile).from(row % kTile, 0),
                            packing_.by_columns(t.value_columns).from(0, x), {products_, kHalf * kLanes});
      unit_.flush();
      if (c_.threshold != 0)
        amx_weights<true, true>(c_, document_, head, at, x, scores_, products_, row, w, words_);
      else if (at.all_seen())
        amx_weights<false, false>(c_, document_, head, at, x, scores_, products_, row, w, words_);
      else
        amx_weights<true, false>(c_, document_, head, at, x, scores_, products_, row, w, words_);
    }
  }

  // Adds the group's part to dk and dv of tile i.
  void add_key_gradients(const Queries& group, std::size_t i) {
    const AmxBackwardTile& t = tiles_[i];
    AmxWeights w = weights_;
    w.ds_over_keys += i * kTile / 2 * kTile;
    // Also halves that see none of the keys, because dq is computed for whole tiles.
    const std::size_t rows = smaller(round_up(group.end - group.begin, kTile), document_.rows - group.begin);
    const std::size_t halves = (rows + kHalf - 1) / kHalf;
    std::size_t seen_by[2 * kMaxPackedQueryTiles];  // each half's keys, from the tile's first to the last that it sees
    for (std::size_t half = 0; half < halves; ++half) {
      const std::size_t row = half * kHalf, query = group.begin + row;
      const HalfPair at{query, smaller(kHalf, document_.rows - query), t.first, t.keys, c_.behind, c_.ahead};
      seen_by[half] = at.any_seen() ? at.end() : 0;
      prefetch_queries(group, row, i);
      weigh(group.head, at, row, i, seen_by[half], w);
      for (std::size_t x = seen_by[half]; x < kTile; x += kHalf) w.clear(row, x);
    }
    for (std::size_t x = 0; x < kTile; x += kHalf) {
      // Halves of queries, at the beginning and at the end, that see none of these 32 keys are left out.
      std::size_t from = 0, to = halves;
      while (from < to && seen_by[from] <= x) ++from;
      while (from < to && seen_by[to - 1] <= x) --to;
      if (from == to) continue;
      const std::size_t first = from * kLanes, pairs = (to - from) * kLanes;  // of queries
      const auto add = [&](const Pair* transposed, const Pair* over_queries, float* sums) {
        unit_.multiply<true>(packing_.padded, kHalf, pairs, packing_.by_transposed(transposed).from(0, first),
                             Factors{over_queries, w.panel}.from(first, x), packing_.sums(sums).from(0, x));
      };
      add(outputs_transposed_, w.p_over_queries, t.dv);
      add(queries_transposed_, w.ds_over_queries, t.dk);
    }
  }

  // Adds the part of all tiles of keys to dq of the tile of queries that begins at `row`, in turn.
  void add_query_gradients(const Queries& group, std::size_t row) {
    const std::size_t m = smaller(kTile, document_.rows - row), padded = packing_.padded;
    // The tiles of keys that at least one of these queries sees are neighbours.
    std::size_t first = 0, end = key_tiles_;
    const auto sees = [&](std::size_t i) {
      return TilePair{row, tiles_[i].first, tiles_[i].keys, c_.behind, c_.ahead}.some_visible();
    };
    while (first < end && !sees(first)) ++first;
    while (first < end && !sees(end - 1)) --end;
    if (first == end) return;
    const std::size_t tile = begin_ / kTile + first, oldest = row <= c_.behind ? 0 : (row - c_.behind) / kTile;
    const std::size_t newest = smaller((row + kTile - 1 + c_.ahead) / kTile, (document_.rows - 1) / kTile);
    const std::size_t statistics = (document_.batch * c_.heads + group.head) * c_.seq + document_.first + row;
    std::uint32_t* const turn = c_.turns + statistics;
    const auto mine = static_cast<std::uint32_t>(tile - oldest), count = static_cast<std::uint32_t>(end - first);
    float* const dq = c_.dq_sum + statistics * padded;
    const Factors gradients{weights_.over_keys_at(row - group.begin, first * kTile), kTile * kLanes};
    const Factors keys{lines_ + first * kPanelOfTile, key_tiles_ * kPanelOfTile};
    await_turn(turn, mine);
    if (mine == 0)
      unit_.multiply_rows<false>(m, padded, count * kTile / 2, gradients, keys, {dq, kLanes, padded});
    else
      unit_.multiply_rows<true>(m, padded, count * kTile / 2, gradients, keys, {dq, kLanes, padded});
    __atomic_store_n(turn, mine + count, __ATOMIC_RELEASE);
    if (tile + count - 1 == newest) {
      auto* const to = static_cast<bf16*>(c_.dq) + (first_row_ + row) * c_.q_stride + group.head * c_.head_dim;
      unpack(dq, padded, m, c_.head_dim, c_.scale, to, c_.q_stride);
    }
  }

  void write(const AmxBackwardTile& t, const float* sums, float factor, void* to, std::size_t at, std::size_t stride) {
    float* const rows = scratch_.next;
    packing_.rows_of(sums, rows);
    if (c_.fp32_key_gradients)
      unpack(rows, packing_.padded, t.keys, c_.head_dim, factor, static_cast<float*>(to) + at, stride);
    else
      unpack(rows, packing_.padded, t.keys, c_.head_dim, factor, static_cast<bf16*>(to) + at, stride);
  }

  TileUnit& unit_;
  const AttentionCall& c_;
  const AttentionRows& document_;
  const AmxPacking packing_;
  const std::size_t kv_head_, first_row_, begin_, end_, key_tiles_, query_tiles_;
  Scratch scratch_;
  // The group of queries and its outputs' gradients, tile after tile: by rows, and by lines that are transposed.
  Pair *queries_, *outputs_, *queries_transposed_, *outputs_transposed_;
  float *scores_, *products_;  // of 32 queries and 32 keys: q k^T and d_o v^T
  AmxWeights weights_;
  std::uint32_t* words_;
  Pair* lines_;  // all keys, by lines
  AmxBackwardTile tiles_[kMaxBackwardTiles];
};

#endif

}  // namespace strata::device::cpu::STRATA_ISA
