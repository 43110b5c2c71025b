#pragma once
#include <cstddef>

#include "device/cpu/kernels/attention/attention_call.h"
#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Indexed by DType. Tasks of one call may run concurrently. Each worker has its own `scratch` of attention_scratch()
// floats, or of amx_attention_scratch() for bf16 with AMX, 64-byte aligned.
struct AttentionKernels {
  // Computes the outputs of the queries that are in the document.
  void (*forward[3])(const AttentionCall&, const AttentionRows& document, const QueryTiles&, float* scratch);
  // Computes delta of rows [begin, end) of the batch * seq rows; sets their turns to zero.
  void (*delta[3])(const AttentionCall&, std::size_t begin, std::size_t end);
  // Computes dk and dv of `tiles` tiles of keys (at most TaskTiles::backward; fewer if the document ends) that begin at
  // row `first` of the document. Their parts of dq are added in turn, so tiles of a document must start in order.
  void (*backward[3])(const AttentionCall&, const AttentionRows& document, std::size_t kv_head, std::size_t first,
                      std::size_t tiles, float* scratch);
};
STRATA_BF16_KERNEL_TABLE(AttentionKernels, attention_kernels)

// The scratch of a task with this many tiles, in floats. Forward: keys, values, and each tile's queries and output.
// Backward: queries, the output's gradient, and each tile's five operands. Then scores, weights, statistics, random
// words, and the gaps between all of these.
inline constexpr std::size_t attention_scratch(std::size_t padded_head_dim, std::size_t query_tiles,
                                               std::size_t key_tiles) {
  const std::size_t forward = 2 * query_tiles, backward = 5 * key_tiles;
  return (2 + (forward < backward ? backward : forward)) * kAttentionTile * padded_head_dim +
         4 * kAttentionTile * kAttentionTile;
}

// The same for tasks that multiply with AMX. Rows are padded to 32 elements if products sum over them. Forward: scores,
// weights and random words of 32 queries; each packed tile of keys' rows and values; each tile of queries' rows, output
// and statistics. Backward: q k^T and d_o v^T of 32 queries and keys; each packed tile of queries' and output
// gradients' rows and lines, and their weights against each tile of keys; each tile of keys' rows, values, lines and
// two gradients. Then random words, a tile that is being packed, and the gaps.
inline constexpr std::size_t amx_attention_scratch(std::size_t padded_head_dim, std::size_t seq,
                                                   std::size_t query_tiles, std::size_t key_tiles) {
  constexpr std::size_t kSquare = kAttentionTile * kAttentionTile, kGaps = 2048;
  constexpr std::size_t kDrawing = 16 * kAttentionTile + 4 * kAttentionTile;
  const std::size_t rows = kAttentionTile * ((padded_head_dim + 31) / 32 * 16);
  const std::size_t lines = kAttentionTile / 2 * padded_head_dim, full = 2 * lines;
  const std::size_t queries = amx_backward_query_tiles(padded_head_dim, seq);
  const std::size_t forward = kSquare / 2 + kSquare / 4 + kSquare / 2 +
                              amx_forward_key_tiles(padded_head_dim, seq) * (rows + lines) +
                              query_tiles * (rows + full + 2 * kAttentionTile);
  const std::size_t backward = kSquare / 2 + queries * (2 * rows + 2 * lines + kSquare + key_tiles * kSquare / 2) +
                               key_tiles * (2 * rows + lines + 2 * full);
  return (forward < backward ? backward : forward) + kDrawing + full + kGaps;
}

}  // namespace strata::device::cpu
