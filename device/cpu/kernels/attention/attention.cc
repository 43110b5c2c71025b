#include "device/cpu/kernels/attention/attention.h"

#include <sched.h>

#include "device/cpu/kernels/attention/operands.h"
#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/lanes/micro_product.h"
#include "device/cpu/kernels/lanes/philox16.h"

namespace strata::device::cpu::STRATA_ISA {

static constexpr float kMasked = -__builtin_inff();
// Where the running maximum starts: finite, so that a tile in which a query sees nothing leaves no NaN behind.
static constexpr float kLowest = -1e30f;

STRATA_LANES std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

template <typename T>
struct OperandsOf {
  using Type = Floats<T>;
};
#if defined(__AVX512BF16__)
template <>
struct OperandsOf<bf16> {
  using Type = Pairs;
};
#endif
template <typename T>
using Operands = typename OperandsOf<T>::Type;

// to[r, c] = factor * from[r, c] rounded.
template <typename T>
static void unpack(const float* from, std::size_t padded, std::size_t rows, std::size_t head_dim, float factor, T* to,
                   std::size_t stride) {
  for (std::size_t r = 0; r < rows; ++r)
    for16(head_dim, [&](std::size_t c, auto n) {
      store(to + r * stride + c, load(from + r * padded + c) * broadcast(factor), n);
    });
}

static void fill(float* row, std::size_t begin, std::size_t end, float value) {
  for (std::size_t i = begin; i < end; ++i) row[i] = value;
}

// A tile of queries q .. q + kTile - 1 against one of keys k .. k + keys - 1, rows of one document.
struct TilePair {
  std::size_t q, k, keys, behind, ahead;
  bool some_visible() const { return k < q + kTile + ahead && k + keys + behind > q; }
  bool all_visible() const { return k + keys <= q + ahead + 1 && q + kTile <= k + behind + 1; }
  // Half of it is masked, and left out where that saves more than it costs.
  bool diagonal() const { return q == k && ahead == 0; }
};

STRATA_LANES std::size_t clamp_tile(std::size_t beyond, std::size_t origin) {
  return beyond <= origin ? 0 : smaller(beyond - origin, kTile);
}

// One tile of 64 queries on its way through the keys: running maximum and sum of each query (lanes), and the output.
template <typename E>
struct ForwardTile {
  E* queries;  // by columns
  float *o, *maximum, *sum;
};

// s[key, query] (scores) -> weights; updates maximum and sum; factor[query] is what the output of the tiles before must
// be multiplied by.
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
      store(s + key * kTile + g * kLanes, p);
    }
  }
  for (std::size_t g = 0; g < kGroups; ++g) store(sum + g * kLanes, total[g]);
}

STRATA_LANES std::uint64_t score_index(const AttentionCall& c, const AttentionRows& rows, std::size_t head,
                                       std::size_t query, std::size_t key) {
  return ((std::uint64_t{rows.batch} * c.heads + head) * c.seq + rows.first + query) * c.seq + rows.first + key;
}

static constexpr std::size_t kWords =
    kTile + kLanes * 2;  // random_range writes whole 32s from up to three words before

// Zeros the dropped ones of p[key, query].
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
[[gnu::noinline]] static void forward(const AttentionCall& c, const AttentionRows& document, std::size_t head,
                                      std::size_t begin, float* memory) {
  using O = Operands<T>;
  using E = typename O::Element;
  constexpr std::size_t kTiles = kForwardQueries / kTile, kTogether = O::kTogether;
  const O operands{{c.scale}};
  const std::size_t padded = c.padded(), vectors = padded / kLanes, width = c.heads * c.head_dim;
  const std::size_t along_head = (c.head_dim + kTogether - 1) / kTogether;
  const std::size_t kv_head = head / (c.heads / c.kv_heads), first_row = document.batch * c.seq + document.first;
  const T* const q = static_cast<const T*>(c.q) + first_row * c.q_stride + head * c.head_dim;
  const T* const k = static_cast<const T*>(c.k) + first_row * c.k_stride + kv_head * c.head_dim;
  const T* const v = static_cast<const T*>(c.v) + first_row * c.v_stride + kv_head * c.head_dim;
  T* const o = static_cast<T*>(c.o) + first_row * width + head * c.head_dim;
  float* const lse = c.lse + (document.batch * c.heads + head) * c.seq + document.first;

  Scratch scratch{memory};
  E* const keys = scratch.take<E>(kTile * padded);
  E* const values = scratch.take<E>(kTile * padded);
  float* const s = scratch.take(kTile * kTile);
  float* const factor = scratch.take(kTile);
  ForwardTile<E> tiles[kTiles];
  const std::size_t end = smaller(begin + kForwardQueries, document.rows);
  const std::size_t used = (end - begin + kTile - 1) / kTile;
  for (std::size_t i = 0; i < used; ++i) {
    ForwardTile<E>& t = tiles[i];
    t = {scratch.take<E>(kTile * padded), scratch.take(kTile * padded), scratch.take(kTile), scratch.take(kTile)};
    const std::size_t first = begin + i * kTile;
    const HeadRows<T> rows{q + first * c.q_stride, c.q_stride, c.head_dim, end - first};
    O::pack_columns(rows, operands.operand_scale(), t.queries, padded, t.o);
    fill(t.maximum, 0, kTile, kLowest);
    fill(t.sum, 0, kTile, 0.0f);
    fill(t.o, 0, kTile * padded, 0.0f);
  }

  const std::size_t oldest = begin <= c.behind ? 0 : begin - c.behind, newest = smaller(end + c.ahead, document.rows);
  for (std::size_t first = oldest / kTile * kTile; first < newest; first += kTile) {
    const std::size_t left = document.rows - first, n = smaller(kTile, left);
    O::pack_rows({k + first * c.k_stride, c.k_stride, c.head_dim, left}, keys, padded);
    O::pack_lines({v + first * c.v_stride, c.v_stride, c.head_dim, left}, values, padded);
    for (std::size_t i = 0; i < used; ++i) {
      const ForwardTile<E>& t = tiles[i];
      const TilePair at{begin + i * kTile, first, n, c.behind, c.ahead};
      if (!at.some_visible()) continue;
      // On the diagonal, 16 keys at a time against the queries that may see one of them.
      const std::size_t some = at.diagonal() ? kLanes : n;
      for (std::size_t y = 0; y < n; y += some) {
        const std::size_t x = at.diagonal() ? y : 0;
        small_product<true, E>(smaller(some, n - y), (kTile - x) / kLanes, along_head,
                               {keys + y * O::row(padded), O::row(padded), 1}, {t.queries + x, kTile},
                               {s + y * kTile + x, kTile, false});
      }
      if (!at.all_visible()) {
        for (std::size_t key = 0; key < n; ++key) {
          fill(s + key * kTile, 0, clamp_tile(first + key, at.q + c.ahead), kMasked);
          fill(s + key * kTile, clamp_tile(first + key + c.behind + 1, at.q), kTile, kMasked);
        }
      }
      softmax_step(operands, s, n, t.maximum, t.sum, factor);
      if (c.threshold != 0) drop(c, document, head, at, s, scratch.next);
      Scratch rest = scratch;
      const E* const p = O::over_keys(s, n, rest);
      const std::size_t queries = smaller(end - at.q, kTile), rows = at.diagonal() ? kLanes : queries;
      for (std::size_t y = 0; y < queries; y += rows) {
        const std::size_t seen = at.diagonal() ? smaller(n, y + rows) : n;
        small_product<false, E>(smaller(rows, queries - y), vectors, (seen + kTogether - 1) / kTogether,
                                {p + y, 1, kTile}, {values, padded}, {t.o + y * padded, padded, true, factor + y});
      }
    }
  }

  for (std::size_t i = 0; i < used; ++i) {
    const ForwardTile<E>& t = tiles[i];
    const std::size_t first = begin + i * kTile, queries = smaller(end - first, kTile);
    for (std::size_t r = 0; r < queries; ++r) {
      unpack(t.o + r * padded, padded, 1, c.head_dim, c.keep_scale / t.sum[r], o + (first + r) * width, width);
      lse[first + r] = operands.lse(t.maximum[r], t.sum[r]);
    }
  }
}

template <typename T>
static void delta(const AttentionCall& c, std::size_t begin, std::size_t end) {
  for (std::size_t row = begin; row < end; ++row) {
    const std::size_t batch = row / c.seq, query = row % c.seq;
    for (std::size_t head = 0; head < c.heads; ++head) {
      const std::size_t at = (row * c.heads + head) * c.head_dim;
      F32x16 total = zeros();
      for16(c.head_dim, [&](std::size_t i, auto n) {
        total = fma(load(static_cast<const T*>(c.o_read) + at + i, n), load(static_cast<const T*>(c.d_o) + at + i, n),
                    total);
      });
      const std::size_t statistics = (batch * c.heads + head) * c.seq + query;
      c.delta[statistics] = sum(total);
      c.turns[statistics] = 0;
    }
  }
}

// From scores s[query, key] and ds = d_o v^T: s becomes the dropped, scaled probabilities, ds the scores' gradient.
template <typename O>
static void probabilities(const O& operands, const AttentionCall& c, const AttentionRows& document, std::size_t head,
                          const TilePair& at, std::size_t queries, float* s, float* ds, std::uint32_t* words) {
  const std::size_t statistics = (document.batch * c.heads + head) * c.seq + document.first + at.q;
  for (std::size_t r = 0; r < queries; ++r, s += kTile, ds += kTile) {
    if (!at.all_visible() || at.keys < kTile) {
      const std::size_t query = at.q + r;
      fill(s, smaller(clamp_tile(query + c.ahead + 1, at.k), at.keys), kTile, kMasked);
      if (query > c.behind) fill(s, 0, clamp_tile(query - c.behind, at.k), kMasked);
    }
    const F32x16 shift = operands.shift_of_lse(c.lse[statistics + r]), mean = broadcast(c.delta[statistics + r]);
    if (c.threshold == 0) {
      for (std::size_t x = 0; x < kTile; x += kLanes) {
        const F32x16 p = operands.weight(load(s + x), shift);
        store(ds + x, p * (load(ds + x) - mean));
        store(s + x, p);
      }
      continue;
    }
    const std::uint32_t* const drawn =
        random_range(c.random, score_index(c, document, head, at.q + r, at.k), kTile, words);
    for (std::size_t x = 0; x < kTile; x += kLanes) {
      const F32x16 p = operands.weight(load(s + x), shift), kept = broadcast(c.keep_scale);
      store(ds + x, p * (keep_from(load(ds + x) * kept, drawn + x, c.threshold) - mean));
      store(s + x, keep_from(p * kept, drawn + x, c.threshold));
    }
  }
}

// dq_sum is added to in the order of the key tiles. A task waits only for tasks that started before it.
static void await_turn(const std::uint32_t* turn, std::uint32_t mine) {
  for (unsigned spins = 0; __atomic_load_n(turn, __ATOMIC_ACQUIRE) != mine; ++spins) {
    if (spins < 1000)
      _mm_pause();
    else
      sched_yield();
  }
}

template <typename T>
[[gnu::noinline]] static void backward(const AttentionCall& c, const AttentionRows& document, std::size_t kv_head,
                                       std::size_t first, float* memory) {
  using O = Operands<T>;
  using E = typename O::Element;
  constexpr std::size_t kTogether = O::kTogether;
  const O operands{{c.scale}};
  const std::size_t padded = c.padded(), vectors = padded / kLanes, width = c.heads * c.head_dim;
  const std::size_t along_head = (c.head_dim + kTogether - 1) / kTogether, row_of = O::row(padded);
  const std::size_t first_row = document.batch * c.seq + document.first, group = c.heads / c.kv_heads;
  const std::size_t tile = first / kTile, last_tile = (document.rows - 1) / kTile;
  const std::size_t n = smaller(kTile, document.rows - first);
  const std::size_t k_at = (first_row + first) * c.k_stride + kv_head * c.head_dim;
  const std::size_t v_at = (first_row + first) * c.v_stride + kv_head * c.head_dim;

  Scratch scratch{memory};
  E* const keys = scratch.take<E>(kTile * padded / kTogether);  // by lines
  E* const key_columns = scratch.take<E>(kTile * padded / kTogether);
  E* const value_columns = scratch.take<E>(kTile * padded / kTogether);
  const RowsAndLines<E> queries = O::take(scratch, padded), outputs = O::take(scratch, padded);  // q and d_o
  float* const dk = scratch.take(kTile * padded);
  float* const dv = scratch.take(kTile * padded);
  float* const s = scratch.take(kTile * kTile);
  float* const ds = scratch.take(kTile * kTile);
  auto* const words = scratch.take<std::uint32_t>(kWords);

  const HeadRows<T> k_rows{static_cast<const T*>(c.k) + k_at, c.k_stride, c.head_dim, n};
  const HeadRows<T> v_rows{static_cast<const T*>(c.v) + v_at, c.v_stride, c.head_dim, n};
  O::pack_columns(v_rows, 1.0f, value_columns, padded, dk);
  O::pack_columns(k_rows, operands.operand_scale(), key_columns, padded, dk);
  O::pack_lines(k_rows, keys, padded);
  fill(dk, 0, kTile * padded, 0.0f);
  fill(dv, 0, kTile * padded, 0.0f);

  for (std::size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const std::size_t statistics = (document.batch * c.heads + head) * c.seq + document.first;
    const std::size_t first_query = first <= c.ahead ? 0 : (first - c.ahead) / kTile * kTile;
    for (std::size_t row = first_query; row < document.rows; row += kTile) {
      const TilePair at{row, first, n, c.behind, c.ahead};
      if (!at.some_visible()) break;
      const std::size_t left = document.rows - row, m = smaller(kTile, left);
      const std::size_t q_at = (first_row + row) * c.q_stride + head * c.head_dim;
      const T* const d_o = static_cast<const T*>(c.d_o) + (first_row + row) * width + head * c.head_dim;
      O::pack_both({static_cast<const T*>(c.q) + q_at, c.q_stride, c.head_dim, left}, queries, padded);
      O::pack_both({d_o, width, c.head_dim, left}, outputs, padded);
      // On the diagonal, 16 queries (below: keys) at a time with the keys (queries) of which one at least sees the
      // other.
      const bool diagonal = at.diagonal();
      const std::size_t some = diagonal ? kLanes : m;
      for (std::size_t y = 0; y < m; y += some) {
        const std::size_t rows = smaller(some, m - y), groups = diagonal ? y / kLanes + 1 : kGroups;
        small_product<true, E>(rows, groups, along_head, {queries.rows + y * row_of, row_of, 1}, {key_columns, kTile},
                               {s + y * kTile, kTile, false});
        small_product<true, E>(rows, groups, along_head, {outputs.rows + y * row_of, row_of, 1}, {value_columns, kTile},
                               {ds + y * kTile, kTile, false});
      }
      probabilities(operands, c, document, head, at, m, s, ds, words);
      Scratch rest = scratch;
      const Weights<E> w = O::weights(s, ds, m, rest);
      const std::size_t some_keys = diagonal ? kLanes : n;
      for (std::size_t x = 0; x < n; x += some_keys) {
        const std::size_t rows = smaller(some_keys, n - x), y = (diagonal ? x : 0) / kTogether;
        const std::size_t along = (m + kTogether - 1) / kTogether;
        small_product<false, E>(rows, vectors, along - y, {w.p_over_queries + y * kTile + x, 1, kTile},
                                {outputs.lines + y * padded, padded}, {dv + x * padded, padded, true});
        small_product<false, E>(rows, vectors, along - y, {w.ds_over_queries + y * kTile + x, 1, kTile},
                                {queries.lines + y * padded, padded}, {dk + x * padded, padded, true});
      }

      const std::size_t oldest = row <= c.behind ? 0 : (row - c.behind) / kTile;
      const std::size_t newest = smaller((row + kTile - 1 + c.ahead) / kTile, last_tile);
      std::uint32_t* const turn = c.turns + statistics + row;
      const auto mine = static_cast<std::uint32_t>(tile - oldest);
      float* const dq = c.dq_sum + (statistics + row) * padded;
      constexpr std::size_t kWeightsRow = kTile / kTogether;
      await_turn(turn, mine);
      for (std::size_t y = 0; y < m; y += some) {
        const std::size_t seen = diagonal ? smaller(n, y + some) : n;
        small_product<true, E>(smaller(some, m - y), vectors, (seen + kTogether - 1) / kTogether,
                               {w.ds_over_keys + y * kWeightsRow, kWeightsRow, 1}, {keys, padded},
                               {dq + y * padded, padded, mine != 0});
      }
      __atomic_store_n(turn, mine + 1, __ATOMIC_RELEASE);
      if (tile == newest) unpack(dq, padded, m, c.head_dim, c.scale, static_cast<T*>(c.dq) + q_at, c.q_stride);
    }
  }
  unpack(dk, padded, n, c.head_dim, c.scale, static_cast<T*>(c.dk) + k_at, c.k_stride);
  unpack(dv, padded, n, c.head_dim, 1.0f, static_cast<T*>(c.dv) + v_at, c.v_stride);
}

// The floating-point unit's mode is set around all of a task, out of the compiler's reach.
template <typename T>
static void forward_task(const AttentionCall& c, const AttentionRows& document, std::size_t head, std::size_t begin,
                         float* memory) {
  [[maybe_unused]] const typename Operands<T>::Mode mode;
  forward<T>(c, document, head, begin, memory);
}
template <typename T>
static void backward_task(const AttentionCall& c, const AttentionRows& document, std::size_t kv_head, std::size_t first,
                          float* memory) {
  [[maybe_unused]] const typename Operands<T>::Mode mode;
  backward<T>(c, document, kv_head, first, memory);
}

extern const AttentionKernels attention_kernels_table = {STRATA_BY_DTYPE(forward_task), STRATA_BY_DTYPE(delta),
                                                         STRATA_BY_DTYPE(backward_task)};

}  // namespace strata::device::cpu::STRATA_ISA
