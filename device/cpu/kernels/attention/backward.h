#pragma once
#include "device/cpu/kernels/attention/tile_pair.h"
#include "device/cpu/kernels/attention/turns.h"
#include "device/cpu/kernels/lanes/micro_product.h"
#include "device/cpu/kernels/lanes/philox16.h"

namespace strata::device::cpu::STRATA_ISA {

// Replaces scores s[query, key] with the scaled probabilities after dropout, and ds = d_o v^T with the scores'
// gradient, both as factors.
template <typename O>
static void probabilities(const O& operands, const AttentionCall& c, const AttentionRows& document, std::size_t head,
                          const TilePair& at, std::size_t queries, float* s, float* ds, std::uint32_t* words) {
  const std::size_t statistics = (document.batch * c.heads + head) * c.seq + document.first + at.q;
  for (std::size_t r = 0; r < queries; ++r, s += kTile, ds += kTile) {
    if (!at.all_visible() || at.keys < kTile) {
      const std::size_t query = at.q + r;
      fill(s, smaller(clamp_tile(query + c.ahead + 1, at.k), at.keys), kTile, kMaskedScore);
      if (query > c.behind) fill(s, 0, clamp_tile(query - c.behind, at.k), kMaskedScore);
    }
    const F32x16 shift = operands.shift_of_lse(c.lse[statistics + r]), mean = broadcast(c.delta[statistics + r]);
    if (c.threshold == 0) {
      for (std::size_t x = 0; x < kTile; x += kLanes) {
        const F32x16 p = operands.weight(load(s + x), shift);
        store(ds + x, O::as_factor(p * (load(ds + x) - mean)));
        store(s + x, O::as_factor(p));
      }
      continue;
    }
    const std::uint32_t* const drawn =
        random_range(c.random, score_index(c, document, head, at.q + r, at.k), kTile, words);
    for (std::size_t x = 0; x < kTile; x += kLanes) {
      const F32x16 p = operands.weight(load(s + x), shift), kept = broadcast(c.keep_scale);
      const F32x16 kept_ds = keep_from(load(ds + x) * kept, drawn + x, c.threshold);
      store(ds + x, O::as_factor(p * (kept_ds - mean)));
      store(s + x, O::as_factor(keep_from(p * kept, drawn + x, c.threshold)));
    }
  }
}

// The state of one tile of keys while it passes over the queries.
template <typename E>
struct BackwardTile {
  std::size_t first, keys;
  E *lines, *columns, *value_columns;
  float *dk, *dv;
};

template <typename T>
[[gnu::noinline]] static void backward(const AttentionCall& c, const AttentionRows& document, std::size_t kv_head,
                                       std::size_t begin, std::size_t most, float* memory) {
  using O = Operands<T>;
  using E = typename O::Element;
  constexpr std::size_t kTogether = O::kTogether;
  const O operands{{c.scale}};
  const std::size_t padded = c.padded(), vectors = padded / kLanes, width = c.heads * c.head_dim;
  const std::size_t along_head = (c.head_dim + kTogether - 1) / kTogether, row_of = O::row(padded);
  const std::size_t first_row = document.batch * c.seq + document.first, group = c.heads / c.kv_heads;
  const std::size_t last_tile = (document.rows - 1) / kTile, end = smaller(begin + most * kTile, document.rows);
  const std::size_t k_head = first_row * c.k_stride + kv_head * c.head_dim;
  const std::size_t v_head = first_row * c.v_stride + kv_head * c.head_dim;

  Scratch scratch{memory};
  const RowsAndLines<E> queries = O::take(scratch, padded), outputs = O::take(scratch, padded);  // q and d_o
  float* const s = scratch.take(kTile * kTile);
  float* const ds = scratch.take(kTile * kTile);
  auto* const words = scratch.take<std::uint32_t>(kWords);
  BackwardTile<E> tiles[kMaxBackwardTiles];
  std::size_t used = 0;
  for (std::size_t first = begin; first < end; first += kTile) {
    BackwardTile<E>& t = tiles[used++];
    t = {first,
         smaller(kTile, end - first),
         scratch.take<E>(kTile / kTogether * padded),
         scratch.take<E>(O::packed(padded)),
         scratch.take<E>(O::packed(padded)),
         scratch.take(kTile * padded),
         scratch.take(kTile * padded)};
    const HeadRows<T> k{static_cast<const T*>(c.k) + k_head + first * c.k_stride, c.k_stride, c.head_dim, end - first};
    const HeadRows<T> v{static_cast<const T*>(c.v) + v_head + first * c.v_stride, c.v_stride, c.head_dim, end - first};
    O::pack_columns(v, 1.0f, t.value_columns, padded, t.dk);
    O::pack_columns(k, operands.operand_scale(), t.columns, padded, t.dk);
    O::pack_lines(k, t.lines, padded);
    fill(t.dk, 0, kTile * padded, 0.0f);
    fill(t.dv, 0, kTile * padded, 0.0f);
  }

  const std::size_t first_query = begin <= c.ahead ? 0 : (begin - c.ahead) / kTile * kTile;
  const std::size_t last_query = smaller(document.rows, end + c.behind);
  for (std::size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const std::size_t statistics = (document.batch * c.heads + head) * c.seq + document.first;
    for (std::size_t row = first_query; row < last_query; row += kTile) {
      const std::size_t left = document.rows - row, m = smaller(kTile, left);
      const std::size_t q_at = (first_row + row) * c.q_stride + head * c.head_dim;
      const T* const d_o = static_cast<const T*>(c.d_o) + (first_row + row) * width + head * c.head_dim;
      O::pack_both({static_cast<const T*>(c.q) + q_at, c.q_stride, c.head_dim, left}, queries, padded, scratch.next);
      O::pack_both({d_o, width, c.head_dim, left}, outputs, padded, scratch.next);
      for (std::size_t i = 0; i < used; ++i) {
        const BackwardTile<E>& t = tiles[i];
        const std::size_t n = t.keys;
        const TilePair at{row, t.first, n, c.behind, c.ahead};
        if (!at.some_visible()) continue;
        // On the diagonal, 16 queries at a time are multiplied only with the keys that one of them sees. Likewise, 16
        // keys are later multiplied only with the queries that see one of them.
        const bool diagonal = at.diagonal();
        const std::size_t some = diagonal ? kLanes : m;
        for (std::size_t y = 0; y < m; y += some) {
          const std::size_t rows = smaller(some, m - y), groups = diagonal ? y / kLanes + 1 : kGroups;
          O::template product<true>(rows, groups, along_head, {queries.rows + y * row_of, row_of, 1},
                                    {t.columns, kTile}, {s + y * kTile, kTile, false});
          O::template product<true>(rows, groups, along_head, {outputs.rows + y * row_of, row_of, 1},
                                    {t.value_columns, kTile}, {ds + y * kTile, kTile, false});
        }
        probabilities(operands, c, document, head, at, m, s, ds, words);
        Scratch rest = scratch;
        const Weights<E> w = O::weights(s, ds, m, rest);
        const std::size_t some_keys = diagonal ? kLanes : n;
        for (std::size_t x = 0; x < n; x += some_keys) {
          const std::size_t rows = smaller(some_keys, n - x), y = (diagonal ? x : 0) / kTogether;
          const std::size_t along = (m + kTogether - 1) / kTogether;
          O::template product<false>(rows, vectors, along - y, {w.p_over_queries + y * kTile + x, 1, kTile},
                                     {outputs.lines + y * padded, padded}, {t.dv + x * padded, padded, true});
          O::template product<false>(rows, vectors, along - y, {w.ds_over_queries + y * kTile + x, 1, kTile},
                                     {queries.lines + y * padded, padded}, {t.dk + x * padded, padded, true});
        }

        const std::size_t tile = t.first / kTile, oldest = row <= c.behind ? 0 : (row - c.behind) / kTile;
        const std::size_t newest = smaller((row + kTile - 1 + c.ahead) / kTile, last_tile);
        std::uint32_t* const turn = c.turns + statistics + row;
        const auto mine = static_cast<std::uint32_t>(tile - oldest);
        float* const dq = c.dq_sum + (statistics + row) * padded;
        constexpr std::size_t kWeightsRow = kTile / kTogether;
        await_turn(turn, mine);
        for (std::size_t y = 0; y < m; y += some) {
          const std::size_t seen = diagonal ? smaller(n, y + some) : n;
          O::template product<true>(smaller(some, m - y), vectors, (seen + kTogether - 1) / kTogether,
                                    {w.ds_over_keys + y * kWeightsRow, kWeightsRow, 1}, {t.lines, padded},
                                    {dq + y * padded, padded, mine != 0});
        }
        __atomic_store_n(turn, mine + 1, __ATOMIC_RELEASE);
        if (tile == newest) unpack(dq, padded, m, c.head_dim, c.scale, static_cast<T*>(c.dq) + q_at, c.q_stride);
      }
    }
  }
  for (std::size_t i = 0; i < used; ++i) {
    const BackwardTile<E>& t = tiles[i];
    const auto write = [&](const float* sums, float factor, void* to, std::size_t at, std::size_t stride) {
      if (c.fp32_key_gradients)
        unpack(sums, padded, t.keys, c.head_dim, factor, static_cast<float*>(to) + at, stride);
      else
        unpack(sums, padded, t.keys, c.head_dim, factor, static_cast<T*>(to) + at, stride);
    };
    write(t.dk, c.scale, c.dk, k_head + t.first * c.k_stride, c.k_stride);
    write(t.dv, 1.0f, c.dv, v_head + t.first * c.v_stride, c.v_stride);
  }
}

}  // namespace strata::device::cpu::STRATA_ISA
