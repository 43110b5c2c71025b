#pragma once
#include <cstddef>

#include "device/cpu/kernels/attention/attention_call.h"
#include "device/cpu/kernels/lanes/select.h"

namespace strata::device::cpu {

// Indexed by DType. Tasks of one call may run concurrently. Each worker has its own `scratch` of attention_scratch()
// floats, 64-byte aligned.
struct AttentionKernels {
  // Computes the outputs of the queries that are in the document.
  void (*forward[3])(const AttentionCall&, const AttentionRows& document, const QueryTiles&, float* scratch);
  // Computes delta of rows [begin, end) of the batch * seq rows; sets their turns to zero.
  void (*delta[3])(const AttentionCall&, std::size_t begin, std::size_t end);
  // Computes dk and dv of `tiles` tiles of keys (at most backward_tiles(); fewer if the document ends) that begin at
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

}  // namespace strata::device::cpu
