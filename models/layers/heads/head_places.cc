#include "models/layers/heads/head_places.h"

#include "device/ops/losses/cross_entropy.h"

namespace strata::models {

using device::DType;
using device::RowStatistics;

HeadPlaces::HeadPlaces(const Shape& s) {
  const std::size_t size = s.rows * s.hidden;
  const bool fp32 = s.dtype == DType::fp32;
  Slots work;
  scratch = work.add_bytes(s.scratch_bytes);
  mean = work.add(s.rows, DType::fp32);
  rstd = work.add(s.rows, DType::fp32);
  losses = work.add(s.rows, DType::fp32);
  statistics = work.add_bytes(s.rows * sizeof(RowStatistics));
  picked = work.add(s.picks ? size : 0, s.dtype);
  inner = work.add(s.transforms ? size : 0, s.dtype);
  active = work.add(s.transforms ? size : 0, s.dtype);
  entered = work.add(s.enters ? size : 0, s.dtype);
  entry_mean = work.add(s.enters ? s.rows : 0, DType::fp32);
  entry_rstd = work.add(s.enters ? s.rows : 0, DType::fp32);
  no_bias = work.add(s.centred ? s.hidden : 0, s.dtype);
  normed = work.add(size, s.dtype);
  // Sums over tiles; the sums of several shards are added by a tree and rounded, unless other ranks add theirs.
  d_normed = work.add(s.learns && (s.shards == 0 || s.shared || fp32) ? size : 0, DType::fp32);
  d_normed_rounded = work.add(s.learns && !fp32 && !s.shared ? size : 0, s.dtype);
  d_normed_of_shards = work.add(s.learns ? s.shards * s.chunk_rows * s.hidden : 0, DType::fp32);
  of_shards = work.add_bytes(s.shared ? 0 : s.shards * s.chunk_rows * sizeof(RowStatistics));
  logits = work.add(s.chunk_rows * s.logit_stride, DType::fp32);
  // In fp32 the gradient buffer itself is the sum over chunks.
  d_weight = work.add(s.learns && s.learns_table && !fp32 ? s.table_rows * s.hidden : 0, DType::fp32);
  logit_bias = work.add(s.words, s.dtype);
  d_logit_bias = work.add(s.learns && s.learns_words ? s.words : 0, DType::fp32);
  chunk_bias = work.add(s.learns && s.learns_words ? s.most_words : 0, DType::fp32);
  bytes = work.bytes();
}

}  // namespace strata::models
