#include "models/layers/blocks/head_norms.h"

#include "device/ops/elementwise.h"
#include "device/ops/tree_sum.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::Lane;
using device::View;

std::size_t keys_of_shard(const HeadNorms::Spec& s) {
  return s.kv_heads * s.sharers / s.shards.of;
}
// The norm of one shard's heads, in rows of queries, keys and values.
device::NormShape norm_of_heads(const HeadNorms::Spec& s, std::size_t heads) {
  const std::size_t stride = (s.heads / s.shards.of + 2 * keys_of_shard(s)) * s.head_dim;
  return {s.tokens, s.head_dim, heads, stride, stride, s.eps};
}

}  // namespace

HeadNorms::HeadNorms(const Spec& spec, Slots& save, Slots& work)
    : spec_(spec),
      query_(NormKind::root_mean_square, norm_of_heads(spec, spec.heads / spec.shards.of), spec.query_gain),
      key_(NormKind::root_mean_square, norm_of_heads(spec, keys_of_shard(spec)), spec.key_gain) {
  const std::size_t of_shards = spec.shards.of > 1 ? spec.shards.count * spec.head_dim : 0;
  query_rstd_ = save.add(spec.tokens * spec.shards.share(spec.heads), device::DType::fp32);
  key_rstd_ = save.add(spec.tokens * spec.shards.count * keys_of_shard(spec), device::DType::fp32);
  d_query_gain_ = work.add(of_shards, device::DType::fp32);
  d_key_gain_ = work.add(of_shards, device::DType::fp32);
}

void HeadNorms::forward(Lane& lane, const AttentionPart& a, const ParameterRange& parameters, ConstView rows, View to,
                        View saved) const {
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
  const auto sum = [&](std::size_t gain, const Slot& of_shards, std::size_t place) {
    if (is_frozen(gain)) return;
    tree_sum(lane, spec_.shards.count, of_shards.of(workspace), {},
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

}  // namespace strata::models
