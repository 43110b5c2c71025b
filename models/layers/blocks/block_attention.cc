#include "models/layers/blocks/block_attention.h"

#include <algorithm>

#include "device/ops/attention/rope.h"
#include "device/ops/elementwise.h"

namespace strata::models {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

BlockAttention::BlockAttention(const Spec& spec, const RunShape& run)
    : spec_(spec),
      tokens_(run.tokens()),
      shards_(run.shards),
      dtype_(run.dtype),
      attention_({.heads = spec.heads / run.shards.of,
                  .kv_heads = std::max<std::size_t>(1, spec.kv_heads / run.shards.of),
                  .head_dim = spec.head_dim,
                  .window = spec.window,
                  .causal = spec.causal,
                  .dropout = spec.dropout,
                  .shards = run.shards,
                  .shared_keys = run.shards.of > spec.kv_heads},
                 run) {}

void BlockAttention::place_saved(Slots& save) {
  const auto& [heads, kv_heads, head_dim, window, causal, dropout, angles, positions, norms] = spec_;
  Slots work;
  shared_.emplace(SharedKeys::Spec{tokens_, heads, kv_heads, head_dim, shards_, dtype_}, save, work);
  if (norms)
    norms_.emplace(HeadNorms::Spec{tokens_, heads, kv_heads, head_dim, norms->eps, norms->query_gain, norms->key_gain,
                                   shards_, shared_->sharers()},
                   save, work);
  rows_ = save.add(rows_size(), dtype_);
  raw_ = save.add(norms ? rows_size() : 0, dtype_);
  mixed_ = save.add(mixed_size(), dtype_);
  lse_ = save.add(tokens_ * shards_.share(heads), DType::fp32);
  work_bytes_ = work.bytes();
}

std::size_t BlockAttention::scratch_bytes(int threads) const {
  return std::max(attention_.scratch_bytes(threads), norms_ ? norms_->scratch_bytes() : 0);
}

void BlockAttention::prepare(Lane& lane, const Context& c, View saved) const {
  const View rows = rows_.of(saved);
  if (norms_) {
    const View raw = raw_.of(saved);
    cast(lane, raw, rows);  // v, and what the norms overwrite
    norms_->forward(lane, attention_, c.parameters, raw, rows, saved);
  }
  rotate(lane, c, rows, false);
  shared_->leave(lane, rows, saved, c.partial);
}

void BlockAttention::attend(Lane& lane, const Context& c, const device::Dropout& dropout, View saved,
                            View scratch) const {
  shared_->take(lane, c.total, saved);
  for (std::size_t v = 0; v < shards_.count; ++v)
    attention_.forward(lane, c, shard(rows_.of(saved), v), shard(mixed_.of(saved), v), shard(lse_.of(saved), v),
                       dropout, scratch, v, keys(saved, v));
}

void BlockAttention::attend_backward(Lane& lane, const Context& c, const device::Dropout& dropout, ConstView saved,
                                     ConstView d_mixed, View d_rows, View scratch) const {
  const View work = work_.of(c.workspace);
  for (std::size_t v = 0; v < shards_.count; ++v)
    attention_.backward(lane, c, shard(rows_.of(saved), v), shard(mixed_.of(saved), v), shard(lse_.of(saved), v),
                        shard(d_mixed, v), shard(d_rows, v), dropout, scratch, v, keys(saved, v),
                        shared_->any() ? shared_->gradients(work, v) : View{});
  shared_->leave_gradients(lane, work, d_rows, c.partial);
}

void BlockAttention::finish_backward(Lane& lane, const Context& c, ConstView saved, View d_rows,
                                     const GradientRange& gradients, View scratch) const {
  shared_->take_gradients(lane, c.total, d_rows);
  rotate(lane, c, d_rows, true);
  if (norms_)
    norms_->backward(lane, attention_, c.parameters, raw_.of(saved), saved, d_rows, gradients, work_.of(c.workspace),
                     scratch);
}

void BlockAttention::sum_gains(Lane& lane, const Context& c, View partials, const GradientRange& gradients) const {
  if (norms_) norms_->sum_gains(lane, work_.of(c.workspace), partials, gradients);
}

void BlockAttention::write_gains(Lane& lane, ConstView sums, const GradientRange& gradients) const {
  if (norms_) norms_->write_gains(lane, sums, gradients);
}

// Queries and keys, by their rows' positions.
void BlockAttention::rotate(Lane& lane, const Context& c, View rows, bool inverse) const {
  if (!spec_.angles) return;
  const std::size_t table = spec_.positions * (spec_.head_dim / 2);
  const std::byte* const angles = c.constants + *spec_.angles;
  const ConstView cos{angles, table, DType::fp32}, sin{angles + table * sizeof(float), table, DType::fp32};
  const device::AttentionShape& a = attention_.shape();
  const auto turn = [&](std::size_t heads, View first) {
    rope(lane, {tokens_, heads, spec_.head_dim, a.q_stride}, first, c.batch.positions, cos, sin, inverse);
  };
  for (std::size_t v = 0; v < shards_.count; ++v) {
    turn(a.heads, attention_.queries(shard(rows, v)));
    if (shared_->owns(v)) turn(a.kv_heads, attention_.keys(shard(rows, v)));
  }
}

}  // namespace strata::models
