#include "models/layers/blocks/block_attention.h"

#include <algorithm>

#include "device/ops/attention/attention.h"
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

void BlockAttention::place_saved(Slots& save, Slots& results) {
  const auto& [heads, kv_heads, head_dim, window, causal, dropout, angles, positions, norms] = spec_;
  Slots work;
  shared_.emplace(SharedKeys::Spec{tokens_, heads, kv_heads, head_dim, shards_, dtype_}, save, work);
  if (norms)
    norms_.emplace(HeadNorms::Spec{tokens_, heads, kv_heads, head_dim, norms->eps, norms->query_gain, norms->key_gain,
                                   shards_, shared_->sharers()},
                   save, work);
  rows_ = save.add(rows_size(), dtype_);
  raw_ = save.add(norms ? rows_size() : 0, dtype_);
  mixed_ = results.add(mixed_size(), dtype_);
  lse_ = save.add(tokens_ * shards_.share(heads), DType::fp32);
  work_bytes_ = work.bytes();
}

std::size_t BlockAttention::scratch_bytes(int threads) const {
  return std::max(attention_.scratch_bytes(threads), norms_ ? norms_->scratch_bytes() : 0);
}

void BlockAttention::prepare(Lane& lane, const Context& c, const ActivationViews& saved) const {
  const View rows = rows_.of(saved);
  if (norms_) {
    const View raw = raw_.of(saved);
    cast(lane, raw, rows);  // v, and what the norms overwrite
    norms_->forward(lane, attention_, c.parameters, raw, rows, saved);
  }
  rotate(lane, c, rows, false);
  shared_->leave(lane, rows, saved, c.partial);
}

void BlockAttention::attend(Lane& lane, const Context& c, const device::Dropout& dropout, const ActivationViews& saved,
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
  shared_->write_partial_gradients(lane, work, d_rows, c.partial);
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

// Rotates queries and keys by their rows' positions.
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

namespace {

using device::ConstView;
using device::Lane;
using device::View;

std::size_t keys_of_shard(const HeadNorms::Spec& s) {
  return s.kv_heads * s.sharers / s.shards.of;
}
// The shape of the norm of one shard's heads, in rows of queries, keys and values.
device::NormShape norm_of_heads(const HeadNorms::Spec& s, std::size_t heads) {
  const std::size_t stride = (s.heads / s.shards.of + 2 * keys_of_shard(s)) * s.head_dim;
  return {s.tokens, s.head_dim, heads, stride, stride, s.eps};
}

}  // namespace

HeadNorms::HeadNorms(const Spec& spec, Slots& save, Slots& work)
    : spec_(spec),
      query_(NormKind::root_mean_square, norm_of_heads(spec, spec.heads / spec.shards.of), spec.query_gain),
      key_(NormKind::root_mean_square, norm_of_heads(spec, keys_of_shard(spec)), spec.key_gain) {
  const std::size_t shard_gains = spec.shards.of > 1 ? spec.shards.count * spec.head_dim : 0;
  query_rstd_ = save.add(spec.tokens * spec.shards.share(spec.heads), device::DType::fp32);
  key_rstd_ = save.add(spec.tokens * spec.shards.count * keys_of_shard(spec), device::DType::fp32);
  d_query_gain_ = work.add(shard_gains, device::DType::fp32);
  d_key_gain_ = work.add(shard_gains, device::DType::fp32);
}

void HeadNorms::forward(Lane& lane, const AttentionPart& a, const ParameterRange& parameters, ConstView rows, View to,
                        const ActivationViews& saved) const {
  for (std::size_t v = 0; v < spec_.shards.count; ++v) {
    const ConstView from = shard(rows, v);
    query_.forward(lane, parameters, a.queries(from), a.queries(shard(to, v)), {}, shard(query_rstd_.of(saved), v));
    if (has_keys(v))
      key_.forward(lane, parameters, a.keys(from), a.keys(shard(to, v)), {}, shard(key_rstd_.of(saved), v));
  }
}

void HeadNorms::backward(Lane& lane, const AttentionPart& a, const ParameterRange& parameters, ConstView rows,
                         ConstView saved, View d_rows, const GradientRange& gradients, View workspace,
                         View scratch) const {
  const std::size_t dim = spec_.head_dim;
  for (std::size_t v = 0; v < spec_.shards.count; ++v) {
    const ConstView from = shard(rows, v);
    const View d = shard(d_rows, v);
    const auto norm = [&](const NormPart& part, View d_heads, ConstView heads, const Slot& rstd, const Slot& d_gain,
                          std::size_t gain) {
      const bool whole = spec_.shards.of == 1;
      const GradientRange to = whole ? gradients : GradientRange{d_gain.of(workspace).sub(v * dim, dim), gain};
      part.backward(lane, parameters, d_heads, heads, {}, shard(rstd.of(saved), v), {}, d_heads, to, scratch);
    };
    norm(query_, a.queries(d), a.queries(from), query_rstd_, d_query_gain_, spec_.query_gain);
    if (has_keys(v))
      norm(key_, a.keys(d), a.keys(from), key_rstd_, d_key_gain_, spec_.key_gain);
    else
      zero(lane, d_key_gain_.of(workspace).sub(v * dim, dim));
  }
}

void HeadNorms::sum_gains(Lane& lane, View workspace, View partials, const GradientRange& gradients) const {
  const std::size_t dim = spec_.head_dim;
  const auto sum = [&](std::size_t gain, const Slot& shard_gains, std::size_t place) {
    if (is_frozen(gain)) return;
    tree_sum(lane, spec_.shards.count, shard_gains.of(workspace), {},
             partials ? partials.sub(place * dim, dim) : gradients.sub(gain, dim));
  };
  sum(spec_.query_gain, d_query_gain_, 0);
  sum(spec_.key_gain, d_key_gain_, 1);
}

void HeadNorms::write_gains(Lane& lane, ConstView sums, const GradientRange& gradients) const {
  const std::size_t dim = spec_.head_dim;
  const auto write = [&](std::size_t gain, std::size_t place) {
    if (!is_frozen(gain)) cast(lane, sums.sub(place * dim, dim), gradients.sub(gain, dim));
  };
  write(spec_.query_gain, 0);
  write(spec_.key_gain, 1);
}

namespace {

using device::ConstView;
using device::Lane;
using device::View;

// Other ranks' numbers are added to -0, which leaves each unchanged. +0 would change -0.
void fill_negative_zero(Lane& lane, View x) {
  zero(lane, x);
  scale(lane, x, -1, x);
}

}  // namespace

SharedKeys::SharedKeys(const Spec& spec, Slots& save, Slots& work)
    : spec_(spec), sharers_(std::max<std::size_t>(1, spec.shards.of / spec.kv_heads)) {
  if (!any()) return;
  keys_ = save.add(std::max<std::size_t>(1, spec.shards.count / sharers_) * size(), spec.dtype);
  sums_ = work.add(spec.shards.count * size(), device::DType::fp32);
}

void SharedKeys::leave(Lane& lane, ConstView heads, const ActivationViews& saved, View partial) const {
  if (!any()) return;
  if (crosses()) fill_negative_zero(lane, partial.sub(0, crossing()));
  for (std::size_t v = 0; v < spec_.shards.count; ++v) {
    if (!owns(v)) continue;
    const View to =
        crosses() ? partial.sub(head(v) * size(), size()) : keys_.of(saved).sub(v / sharers_ * size(), size());
    cast_columns(lane, spec_.tokens, width(), query_width() + width(), in_rows(heads, v), width(), to);
  }
}

void SharedKeys::take(Lane& lane, ConstView total, const ActivationViews& saved) const {
  if (crosses()) cast(lane, total.sub(head(0) * size(), size()), keys_.of(saved));
}

void SharedKeys::write_partial_gradients(Lane& lane, View workspace, View d_heads, View partial) const {
  if (!any()) return;
  const View sums = sums_.of(workspace);
  if (crosses()) {
    fill_negative_zero(lane, partial.sub(0, crossing()));
    return tree_sum(lane, spec_.shards.count, sums, {}, partial.sub(head(0) * size(), size()));
  }
  for (std::size_t v = 0; v < spec_.shards.count; v += sharers_) {
    const View sum = gradients(workspace, v);
    tree_sum(lane, sharers_, sums.sub(v * size(), sharers_ * size()), {}, sum);
    cast_columns(lane, spec_.tokens, width(), width(), sum, query_width() + width(), in_rows(d_heads, v));
  }
}

void SharedKeys::take_gradients(Lane& lane, ConstView total, View d_heads) const {
  if (crosses() && owns(0))
    cast_columns(lane, spec_.tokens, width(), width(), total.sub(head(0) * size(), size()), query_width() + width(),
                 in_rows(d_heads, 0));
}

}  // namespace strata::models
