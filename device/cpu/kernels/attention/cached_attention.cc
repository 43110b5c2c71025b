#include "device/cpu/kernels/lanes/lanes16.h"
#include "device/cpu/kernels/tables.h"

namespace strata::device::cpu::STRATA_ISA {

// Scores of the 16 positions of a block: four chains over the elements of a head hide the latency of a sum.
template <typename T>
STRATA_LANES F32x16 score(const T* q, const T* block, std::size_t head_dim) {
  F32x16 sums[4] = {zeros(), zeros(), zeros(), zeros()};
  std::size_t e = 0;
  for (; e + 4 <= head_dim; e += 4)
    for (std::size_t at = 0; at < 4; ++at)
      sums[at] = fma(broadcast(to_float(q[e + at])), load(block + (e + at) * kLanes), sums[at]);
  for (; e < head_dim; ++e) sums[0] = fma(broadcast(to_float(q[e])), load(block + e * kLanes), sums[0]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Overwrites scores with e^(score - largest); returns their sum.
STRATA_LANES float exponentials(float* scores, std::size_t n) {
  const float lowest = -__builtin_inff();
  F32x16 most = broadcast(lowest);
  for16(n, [&](std::size_t i, auto some) { most = max(most, only(load(scores + i, some), lowest, some)); });
  const F32x16 largest = broadcast(maximum(most));
  F32x16 total = zeros();
  for16(n, [&](std::size_t i, auto some) {
    const F32x16 e = exp(load(scores + i, some) - largest);
    store(scores + i, e, some);
    total = total + only(e, 0.0f, some);
  });
  return sum(total);
}

// Vectors of o [from, from + V): the weighted values.
template <std::size_t V, typename T, typename Some>
STRATA_LANES void mix(const CachedQuery& c, const float* weights, F32x16 inverse, std::size_t from, Some some) {
  const auto* values = reinterpret_cast<const T*>(c.values) + from;
  F32x16 sums[V];
  for (F32x16& s : sums) s = zeros();
  for (std::size_t p = c.begin; p < c.end; ++p) {
    const F32x16 weight = broadcast(weights[p]);
    for (std::size_t v = 0; v < V; ++v)
      sums[v] = fma(load(values + p * c.head_dim + v * kLanes, some), weight, sums[v]);
  }
  auto* o = reinterpret_cast<T*>(c.o) + from;
  for (std::size_t v = 0; v < V; ++v) store(o + v * kLanes, sums[v] * inverse, some);
}

template <typename T>
[[gnu::flatten]] static void attend(const CachedQuery& c) {
  const auto *q = reinterpret_cast<const T*>(c.q), *keys = reinterpret_cast<const T*>(c.keys);
  const F32x16 scale = broadcast(c.scale);
  for (std::size_t p = c.begin / kLanes * kLanes; p < c.end; p += kLanes)
    store(c.scores + p, score(q, keys + p * c.head_dim, c.head_dim) * scale);
  const F32x16 inverse = broadcast(1.0f / exponentials(c.scores + c.begin, c.end - c.begin));
  std::size_t from = 0;
  for (; from + 4 * kLanes <= c.head_dim; from += 4 * kLanes) mix<4, T>(c, c.scores, inverse, from, Full{});
  for16(c.head_dim - from, [&](std::size_t i, auto some) { mix<1, T>(c, c.scores, inverse, from + i, some); });
}

extern const CachedAttentionKernels cached_attention_kernels_table = {.attend = STRATA_BY_DTYPE(attend)};

}  // namespace strata::device::cpu::STRATA_ISA
