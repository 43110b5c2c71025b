#include <algorithm>

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"
#include "device/ops/attention/attention.h"

namespace strata::device::cpu {
namespace {

constexpr std::size_t kBlock = 16;  // positions in a block of keys

// The keys of all heads, then the values of all heads.
struct CacheLayout {
  explicit CacheLayout(const CachedAttentionShape& s)
      : head_dim(s.head_dim), head(s.rounded_capacity() * s.head_dim), values(s.kv_heads * head) {}
  std::size_t key(std::size_t kv_head, std::size_t position, std::size_t element) const {
    return kv_head * head + (position / kBlock * head_dim + element) * kBlock + position % kBlock;
  }
  std::size_t value(std::size_t kv_head, std::size_t position) const {
    return values + kv_head * head + position * head_dim;
  }
  std::size_t head_dim, head, values;
};

template <typename T>
void append(const CachedAttentionShape& s, std::size_t position, const T* k, const T* v, T* cache) {
  const CacheLayout at(s);
  for (std::size_t head = 0; head < s.kv_heads; ++head) {
    for (std::size_t e = 0; e < s.head_dim; ++e) cache[at.key(head, position, e)] = k[head * s.head_dim + e];
    std::copy_n(v + head * s.head_dim, s.head_dim, cache + at.value(head, position));
  }
}

}  // namespace

void cached_attention(Lane& lane, const CachedAttentionShape& s, std::size_t first, std::size_t rows, ConstView q,
                      ConstView k, ConstView v, View cache, View o, View workspace) {
  // Two pieces of work, because a closure with all operands would not fit into the lane.
  submit(lane, [=](Team& team) {
    visit(cache.dtype, [&](auto zero) {
      using T = decltype(zero);
      team.run(rows, [&](std::size_t row, int) {
        append(s, first + row, k.as<T>() + row * s.k_stride, v.as<T>() + row * s.v_stride, cache.as<T>());
      });
    });
  });
  const auto kernel = cached_attention_kernels().attend[index(q.dtype)];
  submit(lane, [=](Team& team) {
    const CacheLayout at(s);
    const std::size_t element = size_of(q.dtype), group = s.heads / s.kv_heads;
    team.run(rows * s.heads, [&](std::size_t task, int worker) {
      const std::size_t row = task / s.heads, head = task % s.heads, end = first + row + 1;
      kernel({.begin = s.window > 0 && end > s.window ? end - s.window : 0,
              .end = end,
              .head_dim = s.head_dim,
              .scale = s.scale,
              .q = q.data + (row * s.q_stride + head * s.head_dim) * element,
              .keys = cache.data + at.key(head / group, 0, 0) * element,
              .values = cache.data + at.value(head / group, 0) * element,
              .o = o.data + task * s.head_dim * element,
              .scores =
                  reinterpret_cast<float*>(workspace.data) + static_cast<std::size_t>(worker) * s.rounded_capacity()});
    });
  });
}

}  // namespace strata::device::cpu
