#pragma once
#include "device/cpu/kernels/attention/tile_pair.h"
#include "device/cpu/kernels/lanes/micro_product.h"
#include "device/cpu/kernels/lanes/philox16.h"

namespace strata::device::cpu::STRATA_ISA {

// The state of one tile of 64 queries while it passes over the keys: each query's running maximum and sum, and the
// output.
template <typename E>
struct ForwardTile {
  std::size_t head, first;
  E* queries;  // stored by columns
  float *o, *maximum, *sum;
};

// Replaces the scores s[key, query] with weights, as factors, and updates maximum and sum. The caller must multiply the
// output of earlier tiles by factor[query].
template <typename O>
static void softmax_step(const O& operands, float* s, std::size_t keys, float* maximum, float* sum, float* factor) {
  F32x16 top[kGroups], total[kGroups], shift[kGroups];
  for (std::size_t g = 0; g < kGroups; ++g) top[g] = load(maximum + g * kLanes);
  for (std::size_t key = 0; key < keys; ++key)
    for (std::size_t g = 0; g < kGroups; ++g) top[g] = max(load(s + key * kTile + g * kLanes), top[g]);
  for (std::size_t g = 0; g < kGroups; ++g) {
    shift[g] = operands.shift(top[g]);
    const F32x16 changed = operands.weight(load(maximum + g * kLanes), shift[g]);
    store(factor + g * kLanes, changed);
    store(maximum + g * kLanes, top[g]);
    total[g] = load(sum + g * kLanes) * changed;
  }
  for (std::size_t key = 0; key < keys; ++key) {
    for (std::size_t g = 0; g < kGroups; ++g) {
      const F32x16 p = operands.weight(load(s + key * kTile + g * kLanes), shift[g]);
      total[g] = total[g] + p;
      store(s + key * kTile + g * kLanes, O::as_factor(p));
    }
  }
  for (std::size_t g = 0; g < kGroups; ++g) store(sum + g * kLanes, total[g]);
}

// Zeros the dropped elements of p[key, query].
static void drop(const AttentionCall& c, const AttentionRows& document, std::size_t head, const TilePair& at, float* p,
                 float* scratch) {
  auto* words = reinterpret_cast<std::uint32_t*>(scratch);
  float* const rows = scratch + kWords;
  float* const columns = rows + kLanes * kTile;
  for (std::size_t g = 0; g < kGroups; ++g) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint64_t index = score_index(c, document, head, at.q + g * kLanes + i, at.k);
      __builtin_memcpy(rows + i * kTile, random_range(c.random, index, kTile, words), kTile * sizeof(float));
    }
    transpose(kLanes, kTile, rows, kTile, columns, kLanes);
    for (std::size_t key = 0; key < at.keys; ++key) {
      float* const x = p + key * kTile + g * kLanes;
      store(x, keep_from(load(x), reinterpret_cast<const std::uint32_t*>(columns + key * kLanes), c.threshold));
    }
  }
}

template <typename T>
[[gnu::noinline]] static void forward(const AttentionCall& c, const AttentionRows& document, const QueryTiles& task,
                                      float* memory) {
  using O = Operands<T>;
  using E = typename O::Element;
  constexpr std::size_t kTogether = O::kTogether;
  const O operands{{c.scale}};
  const std::size_t padded = c.padded(), vectors = padded / kLanes, width = c.heads * c.head_dim;
  const std::size_t along_head = (c.head_dim + kTogether - 1) / kTogether;
  const std::size_t kv_head = task.head / (c.heads / c.kv_heads), first_row = document.batch * c.seq + document.first;
  const T* const q = static_cast<const T*>(c.q) + first_row * c.q_stride;
  const T* const k = static_cast<const T*>(c.k) + first_row * c.k_stride + kv_head * c.head_dim;
  const T* const v = static_cast<const T*>(c.v) + first_row * c.v_stride + kv_head * c.head_dim;
  const std::size_t begin = task.begin, end = smaller(begin + task.rows, document.rows);

  Scratch scratch{memory};
  E* const keys = scratch.take<E>(kTile * padded);
  E* const values = scratch.take<E>(kTile * padded);
  float* const s = scratch.take(kTile * kTile);
  float* const factor = scratch.take(kTile);
  ForwardTile<E> tiles[kMaxForwardTiles];
  std::size_t used = 0;
  for (std::size_t head = task.head; head < task.head + task.heads; ++head) {
    for (std::size_t first = begin; first < end; first += kTile) {
      ForwardTile<E>& t = tiles[used++];
      t = {head,
           first,
           scratch.take<E>(kTile * padded),
           scratch.take(kTile * padded),
           scratch.take(kTile),
           scratch.take(kTile)};
      const HeadRows<T> rows{q + first * c.q_stride + head * c.head_dim, c.q_stride, c.head_dim, end - first};
      O::pack_columns(rows, operands.operand_scale(), t.queries, padded, t.o);
      fill(t.maximum, 0, kTile, kLowest);
      fill(t.sum, 0, kTile, 0.0f);
      fill(t.o, 0, kTile * padded, 0.0f);
    }
  }

  const std::size_t oldest = begin <= c.behind ? 0 : begin - c.behind, newest = smaller(end + c.ahead, document.rows);
  for (std::size_t first = oldest / kTile * kTile; first < newest; first += kTile) {
    const std::size_t left = document.rows - first, n = smaller(kTile, left);
    O::pack_rows({k + first * c.k_stride, c.k_stride, c.head_dim, left}, keys, padded);
    O::pack_values({v + first * c.v_stride, c.v_stride, c.head_dim, left}, values, padded, scratch.next);
    for (std::size_t i = 0; i < used; ++i) {
      const ForwardTile<E>& t = tiles[i];
      const TilePair at{t.first, first, n, c.behind, c.ahead};
      if (!at.some_visible()) continue;
      // On the diagonal, 16 keys at a time are multiplied only with the queries that may see one of them.
      const bool diagonal = at.diagonal();
      const std::size_t some = diagonal ? kLanes : n;
      for (std::size_t y = 0; y < n; y += some) {
        const std::size_t x = diagonal ? y : 0;
        O::template product<true>(smaller(some, n - y), (kTile - x) / kLanes, along_head,
                                  {keys + y * O::row(padded), O::row(padded), 1}, {t.queries + x, kTile},
                                  {s + y * kTile + x, kTile, false});
      }
      if (!at.all_visible()) {
        for (std::size_t key = 0; key < n; ++key) {
          fill(s + key * kTile, 0, clamp_tile(first + key, at.q + c.ahead), kMaskedScore);
          fill(s + key * kTile, clamp_tile(first + key + c.behind + 1, at.q), kTile, kMaskedScore);
        }
      }
      softmax_step(operands, s, n, t.maximum, t.sum, factor);
      if (c.threshold != 0) drop(c, document, t.head, at, s, scratch.next);
      Scratch rest = scratch;
      const E* const p = O::over_keys(s, n, rest);
      const std::size_t queries = smaller(end - at.q, kTile), rows = diagonal ? kLanes : queries;
      for (std::size_t y = 0; y < queries; y += rows) {
        const std::size_t seen = diagonal ? smaller(n, y + rows) : n;
        O::template product<false>(smaller(rows, queries - y), vectors, (seen + kTogether - 1) / kTogether,
                                   {p + y, 1, kTile}, {values, padded}, {t.o + y * padded, padded, true, factor + y});
      }
    }
  }

  for (std::size_t i = 0; i < used; ++i) {
    const ForwardTile<E>& t = tiles[i];
    T* const o = static_cast<T*>(c.o) + (first_row + t.first) * width + t.head * c.head_dim;
    float* const lse = c.lse + (document.batch * c.heads + t.head) * c.seq + document.first + t.first;
    for (std::size_t r = 0; r < smaller(end - t.first, kTile); ++r) {
      unpack(t.o + r * padded, padded, 1, c.head_dim, c.keep_scale / t.sum[r], o + r * width, width);
      lse[r] = operands.lse(t.maximum[r], t.sum[r]);
    }
  }
}

}  // namespace strata::device::cpu::STRATA_ISA
