#pragma once
#include "device/cpu/kernels/attention/amx_operands.h"
#include "device/cpu/kernels/lanes/philox16.h"

namespace strata::device::cpu::STRATA_ISA {

#if defined(__AMX_BF16__)

// The state of a tile of queries while it passes over the keys.
struct AmxForwardTile {
  std::size_t head, first;
  Pair* queries;  // by columns
  float* o;       // [head_dim, query]
  float *maximum, *sum;
};

// Random words of dropout: to[key, query] for the half.
static void draw(const AttentionCall& c, const AttentionRows& document, std::size_t head, const HalfPair& at,
                 std::uint32_t* to, float* room) {
  auto* const words = reinterpret_cast<std::uint32_t*>(room);
  float* const rows = room + kWords;
  for (std::size_t g = 0; g < kHalf; g += kLanes) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint64_t index = score_index(c, document, head, at.query + g + i, at.first);
      __builtin_memcpy(rows + i * kTile, random_range(c.random, index, kTile, words), kTile * sizeof(float));
    }
    transpose(kLanes, kTile, rows, kTile, reinterpret_cast<float*>(to) + g, kHalf);
  }
}

// What 32 queries keep from one tile of keys to the next. The output is [head_dim, query], in panels of 16 queries.
struct SoftmaxState {
  float *maximum, *sum, *o;
};

static constexpr std::size_t kScoresPanel = kTile * kLanes, kWeightsPanel = kTile / 2 * kLanes;

// Scores [key, query] of 32 queries and of `keys` keys, a multiple of 32; and where their weights go, in pairs of keys.
struct SoftmaxStep {
  const float* scores;
  Pair* weights;
  const std::uint32_t* words;  // random words of dropout
  std::uint32_t threshold;
  const Pair* next;  // what the next two products read: this tile's values and the next tile's keys
  std::size_t padded, keys;
};

// The base-2 logarithm of a score's weight is factor * score - factor * maximum.
struct SoftmaxOfHalf {
  float factor;

  // Raises the maxima to the greatest scores so far, then adds these scores' weights to the sums.
  template <bool kMasked, bool kDropout>
  void run(const HalfPair& at, const SoftmaxStep& step, const SoftmaxState& state) const {
    raise_maxima<kMasked>(at, step, state);
    weigh<kMasked, kDropout>(at, step, state);
  }

 private:
  // Multiplies sums and outputs by the new weights of the old maxima.
  template <bool kMasked>
  [[gnu::always_inline]] void raise_maxima(const HalfPair& at, const SoftmaxStep& step,
                                           const SoftmaxState& state) const {
    F32x16 top[2][2];  // of a group of 16 queries; two chains hide the latency of a maximum
#pragma GCC unroll 2
    for (std::size_t g = 0; g < 2; ++g) top[g][0] = top[g][1] = load(state.maximum + g * kLanes);
    for (std::size_t key = 0; key < step.keys; key += 2)
#pragma GCC unroll 2
      for (std::size_t g = 0; g < 2; ++g)
#pragma GCC unroll 2
        for (std::size_t i = 0; i < 2; ++i) {
          const __m512 score = load(step.scores + g * kScoresPanel + (key + i) * kLanes).v;
          const __mmask16 seen = kMasked ? at.queries_of(key + i, g * kLanes) : 0xffff;
          top[g][i].v =
              kMasked ? _mm512_mask_max_ps(top[g][i].v, seen, score, top[g][i].v) : _mm512_max_ps(score, top[g][i].v);
        }
#pragma GCC unroll 2
    for (std::size_t g = 0; g < 2; ++g) {
      const F32x16 old = load(state.maximum + g * kLanes), f = broadcast(factor), now = max(top[g][0], top[g][1]);
      if (_mm512_cmp_ps_mask(now.v, old.v, _CMP_NLE_UQ) == 0) continue;
      store(state.maximum + g * kLanes, now);
      if (_mm512_cmp_ps_mask(old.v, broadcast(kLowest).v, _CMP_NEQ_UQ) == 0) continue;  // sums and outputs are still 0
      const F32x16 change = weight_of(old, f, zeros() - now * f);
      store(state.sum + g * kLanes, load(state.sum + g * kLanes) * change);
      float* const o = state.o + g * kLanes * step.padded;
      for (std::size_t e = 0; e < step.padded; ++e) store(o + e * kLanes, load(o + e * kLanes) * change);
    }
  }

  template <bool kMasked, bool kDropout>
  [[gnu::always_inline]] void weigh(const HalfPair& at, const SoftmaxStep& step, const SoftmaxState& state) const {
    const SoftmaxStep local = step;  // a copy, because the compiler assumes that stores of weights change `step`
    const F32x16 f = broadcast(factor);
    const bool fetch = local.padded <= 64;  // more would not fit into the cache
    F32x16 shift[2], total[2];
#pragma GCC unroll 2
    for (std::size_t g = 0; g < 2; ++g) {
      shift[g] = zeros() - load(state.maximum + g * kLanes) * f;
      total[g] = load(state.sum + g * kLanes);
    }
    for (std::size_t pair = 0; pair < local.keys / 2; ++pair) {
      if (fetch)
#pragma GCC unroll 8
        for (std::size_t i = 0; i < 8; ++i) __builtin_prefetch(local.next + (pair * 8 + i) * kLanes);
      const std::size_t first = pair / kLanes * kHalf + pair % kLanes;
#pragma GCC unroll 2
      for (std::size_t g = 0; g < 2; ++g) {
        F32x16 weights[2];
#pragma GCC unroll 2
        for (std::size_t i = 0; i < 2; ++i) {
          const std::size_t key = first + i * kLanes;
          F32x16 w = weight_of(load(local.scores + g * kScoresPanel + key * kLanes), f, shift[g]);
          if constexpr (kMasked) w = only_seen(w, at.queries_of(key, g * kLanes));
          total[g] = total[g] + w;
          if constexpr (kDropout) w = keep_from(w, local.words + key * kHalf + g * kLanes, local.threshold);
          weights[i] = w;
        }
        _mm512_storeu_si512(local.weights + g * kWeightsPanel + pair * kLanes,
                            pair_up(rounded(weights[0]), rounded(weights[1])));
      }
    }
#pragma GCC unroll 2
    for (std::size_t g = 0; g < 2; ++g) store(state.sum + g * kLanes, total[g]);
  }
};

// A task: its tiles of queries pass over packed groups of tiles of keys. Each half of a tile passes over a whole group
// before the next half, so that its output stays in the first-level cache.
class AmxForward {
 public:
  AmxForward(TileUnit& unit, const AttentionCall& c, const AttentionRows& document, const QueryTiles& task,
             float* memory)
      : unit_(unit),
        c_(c),
        document_(document),
        softmax_{Softmax<bf16>{c.scale}.factor()},
        packing_(c.padded()),
        kv_head_(task.head / (c.heads / c.kv_heads)),
        first_row_(document.batch * c.seq + document.first),
        begin_(task.begin),
        end_(smaller(task.begin + task.rows, document.rows)),
        scratch_{memory} {
    scores_ = scratch_.take(kTile * kHalf);
    weights_ = scratch_.take<Pair>(kTile / 2 * kHalf);
    for (std::size_t i = 0; i < amx_forward_key_tiles(packing_.padded, c_.seq); ++i) {
      keys_[i] = scratch_.take<Pair>(packing_.rows_size());
      values_[i] = scratch_.take<Pair>(packing_.lines_size());
    }
    for (std::size_t head = task.head; head < task.head + task.heads; ++head)
      for (std::size_t first = begin_; first < end_; first += kTile) add_tile(head, first);
    words_ = scratch_.take<std::uint32_t>(kTile * kHalf);
  }

  // Not inlined, so that no arithmetic moves across the change of mode (AmxMode).
  [[gnu::noinline]] void run() {
    const std::size_t group = amx_forward_key_tiles(packing_.padded, c_.seq) * kTile;
    const std::size_t oldest = begin_ <= c_.behind ? 0 : begin_ - c_.behind;
    const std::size_t newest = smaller(end_ + c_.ahead, document_.rows);
    for (std::size_t first = oldest / kTile * kTile; first < newest; first += group) {
      const std::size_t keys_end = smaller(first + group, newest);
      pack_keys(first, keys_end);
      for (const AmxForwardTile* t = tiles_; t < tiles_ + used_; ++t)
        for (std::size_t x = 0; x < kTile && t->first + x < end_; x += kHalf)
          for (std::size_t key = first; key < keys_end; key += kTile) attend(*t, x, key, (key - first) / kTile);
    }
    for (const AmxForwardTile* t = tiles_; t < tiles_ + used_; ++t) write(*t);
  }

 private:
  void add_tile(std::size_t head, std::size_t first) {
    AmxForwardTile& t = tiles_[used_++];
    const std::size_t padded = packing_.padded;
    t = {head,
         first,
         scratch_.take<Pair>(packing_.rows_size()),
         scratch_.take(kTile * padded),
         scratch_.take(kTile),
         scratch_.take(kTile)};
    const bf16* const q = static_cast<const bf16*>(c_.q) + (first_row_ + first) * c_.q_stride + head * c_.head_dim;
    packing_.rows({q, c_.q_stride, c_.head_dim, end_ - first}, reinterpret_cast<Pair*>(t.o));
    packing_.columns(reinterpret_cast<Pair*>(t.o), t.queries);
    fill(t.maximum, 0, kTile, kLowest);
    fill(t.sum, 0, kTile, 0.0f);
    fill(t.o, 0, kTile * padded, 0.0f);
  }

  void pack_keys(std::size_t begin, std::size_t end) {
    const std::size_t head = kv_head_ * c_.head_dim;
    for (std::size_t first = begin; first < end; first += kTile) {
      const std::size_t i = (first - begin) / kTile, left = document_.rows - first, row = first_row_ + first;
      auto* const lines = reinterpret_cast<Pair*>(scratch_.next);
      packing_.rows({static_cast<const bf16*>(c_.k) + row * c_.k_stride + head, c_.k_stride, c_.head_dim, left},
                    keys_[i]);
      packing_.lines({static_cast<const bf16*>(c_.v) + row * c_.v_stride + head, c_.v_stride, c_.head_dim, left}, lines,
                     kTile / 2 * kLanes);
      packing_.transposed(lines, values_[i]);
    }
  }

  // 32 queries of t, from number x, against tile number i of the group, whose first key is `first`.
  void attend(const AmxForwardTile& t, std::size_t x, std::size_t first, std::size_t i) {
    const HalfPair at{t.first + x, smaller(kHalf, end_ - t.first - x),
                      first,       smaller(kTile, document_.rows - first),
                      c_.behind,   c_.ahead};
    if (!at.any_seen()) return;
    const std::size_t keys = at.end(), padded = packing_.padded;
    unit_.multiply<false>(keys, kHalf, packing_.pairs, packing_.by_rows(keys_[i]),
                          packing_.by_columns(t.queries).from(0, x), {scores_, kScoresPanel});
    unit_.flush();
    const SoftmaxStep step{scores_, weights_, words_, c_.threshold, values_[i], padded, keys};
    const SoftmaxState state{t.maximum + x, t.sum + x, t.o + x * padded};
    if (c_.threshold != 0) {
      draw(c_, document_, t.head, at, words_, scratch_.next);
      softmax_.run<true, true>(at, step, state);
    } else if (at.all_seen()) {
      softmax_.run<false, false>(at, step, state);
    } else {
      softmax_.run<true, false>(at, step, state);
    }
    unit_.multiply<true>(padded, kHalf, keys / 2, packing_.by_transposed(values_[i]), {weights_, kWeightsPanel},
                         packing_.sums(t.o).from(0, x));
  }

  void write(const AmxForwardTile& t) {
    const Softmax<bf16> operands{c_.scale};
    const std::size_t padded = packing_.padded, width = c_.heads * c_.head_dim;
    bf16* const o = static_cast<bf16*>(c_.o) + (first_row_ + t.first) * width + t.head * c_.head_dim;
    float* const lse = c_.lse + (document_.batch * c_.heads + t.head) * c_.seq + document_.first + t.first;
    auto* const rows = reinterpret_cast<float*>(keys_[0]);  // [query, head_dim], over keys and values
    packing_.rows_of(t.o, rows);
    for (std::size_t r = 0; r < smaller(end_ - t.first, kTile); ++r) {
      unpack(rows + r * padded, padded, 1, c_.head_dim, c_.keep_scale / t.sum[r], o + r * width, width);
      lse[r] = operands.lse(t.maximum[r], t.sum[r]);
    }
  }

  TileUnit& unit_;
  const AttentionCall& c_;
  const AttentionRows& document_;
  const SoftmaxOfHalf softmax_;
  const AmxPacking packing_;
  const std::size_t kv_head_, first_row_, begin_, end_;
  Scratch scratch_;
  float* scores_;  // [key, query]
  Pair* weights_;  // [pair of keys, query]
  std::uint32_t* words_;
  Pair *keys_[kMaxPackedKeyTiles], *values_[kMaxPackedKeyTiles];  // by rows, and by lines that are transposed
  AmxForwardTile tiles_[kMaxForwardTiles];
  std::size_t used_ = 0;
};

#endif

}  // namespace strata::device::cpu::STRATA_ISA
