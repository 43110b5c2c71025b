#pragma once
#include <cstddef>
#include <cstdint>

#include "device/numeric/philox.h"
#include "device/row_range.h"

namespace strata::device::cpu {

// One call of attention; see device/ops/attention/attention.h. Unused pointers are null.
struct AttentionCall {
  std::size_t batch, seq, heads, kv_heads, head_dim;
  std::size_t behind, ahead;  // rows before and after its own that a query sees in its document
  std::size_t q_stride, k_stride, v_stride;
  float scale;
  const void *q, *k, *v, *d_o;
  const void* o_read;
  void *o, *dq, *dk, *dv;
  bool fp32_key_gradients;
  const RowRange* documents;  // [batch * seq]
  float* lse;                 // [batch, heads, seq]
  float* delta;               // [batch, heads, seq]: sum over the head of o * d_o
  float* dq_sum;              // [batch, heads, seq, head_dim rounded up to 16]
  std::uint32_t* turns;       // [batch, heads, seq]: contributions so far to dq_sum of the query tile that starts there
  RandomStream random;        // random numbers of dropout, which numbers heads within the layer
  std::uint32_t layer_heads, first_head;
  std::uint32_t threshold;  // 0: no dropout
  float keep_scale;         // 1 / (1 - p)

  [[gnu::always_inline]] std::size_t padded() const { return (head_dim + 15) / 16 * 16; }
};

// A document: `rows` rows of sequence `batch`, starting at its row `first`.
struct AttentionRows {
  std::size_t batch, first, rows;
};

// The tiles that a forward task computes: queries [begin, begin + rows) of the `heads` heads that start at `head` and
// share a key head. heads * (tiles in rows) is at most TaskTiles::forward.
struct QueryTiles {
  std::size_t head, heads, begin, rows;
};

inline constexpr std::size_t kAttentionTile = 64;  // keys and queries of a tile; orders the sums

// The maximum number of tiles that one task processes against the tiles of the other operand, which are packed once for
// all of them. The data that a task keeps per tile must fit into a core's own cache. In forward these are tiles of
// queries, of one head or of several that share a key head; in backward, tiles of keys. Bits do not depend on their
// number.
struct TaskTiles {
  std::size_t forward, backward;
};
[[gnu::always_inline]] constexpr std::size_t clamp_tiles(std::size_t tiles, std::size_t least, std::size_t most) {
  return tiles < least ? least : tiles < most ? tiles : most;
}
constexpr TaskTiles task_tiles(std::size_t padded_head_dim) {
  return {clamp_tiles(512 / padded_head_dim, 2, 8), clamp_tiles(256 / padded_head_dim, 1, 4)};
}
// The same for kernels that multiply with AMX, whose processors have caches of 2 MiB.
inline constexpr std::size_t kMaxForwardTiles = 16, kMaxBackwardTiles = 8;
constexpr TaskTiles amx_task_tiles(std::size_t padded_head_dim) {
  return {clamp_tiles(1024 / padded_head_dim, 2, kMaxForwardTiles),
          clamp_tiles(512 / padded_head_dim, 1, kMaxBackwardTiles)};
}

// The kernels with AMX (amx_forward.h, amx_backward.h) also pack several tiles of the other operand at a time: in
// forward tiles of keys, over which each tile of queries passes while its output stays in the first-level cache; in
// backward tiles of queries, for all of which dk and dv are read and written once.
inline constexpr std::size_t kMaxPackedKeyTiles = 8, kMaxPackedQueryTiles = 4;
[[gnu::always_inline]] constexpr std::size_t tiles_of(std::size_t rows) {
  return (rows + kAttentionTile - 1) / kAttentionTile;
}
[[gnu::always_inline]] constexpr std::size_t amx_forward_key_tiles(std::size_t padded_head_dim, std::size_t seq) {
  return clamp_tiles(clamp_tiles(512 / padded_head_dim, 2, kMaxPackedKeyTiles), 1, tiles_of(seq));
}
[[gnu::always_inline]] constexpr std::size_t amx_backward_query_tiles(std::size_t padded_head_dim, std::size_t seq) {
  return clamp_tiles(clamp_tiles(256 / padded_head_dim, 1, kMaxPackedQueryTiles), 1, tiles_of(seq));
}

}  // namespace strata::device::cpu
