#include "models/layers/pre_norm_block.h"

#include <algorithm>
#include <utility>

#include "device/ops/activation.h"
#include "device/ops/attention/rope.h"
#include "device/ops/dropout.h"
#include "device/ops/elementwise.h"
#include "device/ops/tree_sum.h"
#include "models/layers/attention_part.h"
#include "models/layers/block_unit.h"
#include "models/layers/slots.h"
#include "models/layers/split_linear.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

struct NormOffsets {
  std::size_t gain, bias;
};

// Offsets of a block's parameters in its flat buffer; the same for every block of a kind.
struct Offsets {
  NormOffsets attention_norm, q_norm, k_norm, mlp_norm;
  SplitLinear::Offsets qkv, projection, up, down;
};

// The operations of a block, prepared once and shared by all blocks of a kind.
struct BlockPlan : BlockOperations {
  BlockPlan(const PreNormBlockSpec& s, const RunShape& run, const Offsets& o, const PreNormBlockSpec::Layer& kind)
      : BlockOperations{run.tokens(),
                        s.hidden,
                        run.dtype,
                        run.threads,
                        AttentionPart({.heads = s.heads / run.shards.of,
                                       .kv_heads = s.kv_heads / run.shards.of,
                                       .head_dim = s.head_dim,
                                       .window = kind.window,
                                       .causal = s.causal,
                                       .dropout = s.attention_dropout,
                                       .shards = run.shards},
                                      run),
                        linear(s, run, CutSide::outputs, s.hidden, o.qkv, s.qkv.biased),
                        linear(s, run, CutSide::inputs, s.query_width(), o.projection, s.projection.biased),
                        linear(s, run, CutSide::outputs, s.hidden, o.up, s.up.biased, gelu_of(s)),
                        linear(s, run, CutSide::inputs, s.inner, o.down, s.down.biased, Gelu::none,
                               /*gelu_before=*/gelu_of(s))},
        spec(s),
        layer(kind),
        shards(run.shards),
        attention_norm(s.norm, norm_of_rows(tokens, s.hidden, s.eps), o.attention_norm.gain, o.attention_norm.bias),
        mlp_norm(s.norm, norm_of_rows(tokens, s.hidden, s.eps), o.mlp_norm.gain, o.mlp_norm.bias),
        q_norm(NormKind::root_mean_square, norm_of_heads(s.heads), o.q_norm.gain),
        k_norm(NormKind::root_mean_square, norm_of_heads(s.kv_heads), o.k_norm.gain) {
    const DType t = run.dtype;
    const std::size_t rows = tokens * s.hidden, means = s.norm == NormKind::root_mean_square ? 0 : tokens;
    const std::size_t qkv_width = shards.share(s.qkv_width()), query_width = shards.share(s.query_width());
    const bool norms_heads = !s.q_norm.empty();
    Slots save;
    mean1 = save.add(kind.has_norm ? means : 0, DType::fp32);
    rstd1 = save.add(kind.has_norm ? tokens : 0, DType::fp32);
    normed1 = save.add(kind.has_norm ? rows : 0, t);
    heads = save.add(tokens * qkv_width, t);
    raw = save.add(norms_heads ? tokens * qkv_width : 0, t);
    q_rstd = save.add(norms_heads ? tokens * shards.share(s.heads) : 0, DType::fp32);
    k_rstd = save.add(norms_heads ? tokens * shards.share(s.kv_heads) : 0, DType::fp32);
    mixed = save.add(tokens * query_width, t);
    lse = save.add(tokens * shards.share(s.heads), DType::fp32);
    middle = save.add(rows, t);
    mean2 = save.add(means, DType::fp32);
    rstd2 = save.add(tokens, DType::fp32);
    normed2 = save.add(rows, t);
    inner = save.add(tokens * up.out(), t);
    active = save.add(tokens * shards.share(s.inner), t);
    bytes.saved = save.bytes();
    bytes.cache = attention.cache_bytes();

    Slots work;
    const std::size_t norms =
        std::max(mlp_norm.scratch_bytes(), norms_heads ? std::max(q_norm.scratch_bytes(), k_norm.scratch_bytes()) : 0);
    scratch = work.add_bytes(std::max(scratch_bytes(), norms));
    narrow = work.add(std::max(rows, tokens * query_width), t);
    no_bias = work.add(s.norm == NormKind::layer_without_bias ? s.hidden : 0, t);
    bytes.forward_workspace = work.bytes();
    wide = work.add(tokens * std::max(up.out(), qkv_width), t);
    d_active = work.add(s.mlp == MlpKind::gelu_tanh ? 0 : tokens * shards.share(s.inner), t);
    dropped = work.add(s.residual_dropout > 0 ? rows : 0, t);
    d_q_gain = work.add(norms_heads && shards.of > 1 ? shards.count * s.head_dim : 0, DType::fp32);
    d_k_gain = work.add(norms_heads && shards.of > 1 ? shards.count * s.head_dim : 0, DType::fp32);
    bytes.backward_workspace = work.bytes();
  }
  static Gelu gelu_of(const PreNormBlockSpec& s) { return s.mlp == MlpKind::gelu_tanh ? Gelu::tanh : Gelu::none; }
  static SplitLinear linear(const PreNormBlockSpec& s, const RunShape& run, CutSide side, std::size_t in,
                            const SplitLinear::Offsets& offsets, bool biased, Gelu gelu_after = Gelu::none,
                            Gelu gelu_before = Gelu::none) {
    return {side,
            {run.tokens(),
             in,
             {},
             biased,
             s.input_major,
             run.dtype,
             run.device,
             gelu_after,
             gelu_before,
             run.adapter_dropout()},
            offsets};
  }
  // The heads of one shard.
  device::NormShape norm_of_heads(std::size_t heads_of_all) const {
    const std::size_t stride = spec.qkv_width() / shards.of;
    return {tokens, spec.head_dim, heads_of_all / shards.of, stride, stride, spec.eps};
  }

  PreNormBlockSpec spec;
  PreNormBlockSpec::Layer layer;
  ShardRange shards;
  // The index of each product's first linear layer in the block.
  std::size_t projection_at = spec.qkv.matrices.size(), up_at = projection_at + spec.projection.matrices.size(),
              down_at = up_at + spec.up.matrices.size();
  NormPart attention_norm, mlp_norm, q_norm, k_norm;
  Slot mean1, rstd1, normed1, heads, raw, q_rstd, k_rstd, mixed, lse, middle, mean2, rstd2, normed2, inner,
      active;                                                                  // saved
  Slot scratch, narrow, no_bias, wide, d_active, dropped, d_q_gain, d_k_gain;  // workspace
};

class Block final : public BlockUnit<BlockPlan> {
 public:
  Block(const PreNormBlockSpec& s, std::size_t layer, const RunShape& run) : BlockUnit(layer, run) {
    const std::string prefix = s.prefix + std::to_string(layer) + ".";
    if (s.layers[layer].has_norm) o_.attention_norm = add_norm(s.norm, prefix + s.attention_norm, s.hidden);
    add_layers(o_.qkv, prefix, s.qkv, s.hidden, CutSide::outputs, s.input_major);
    if (!s.q_norm.empty()) {
      o_.q_norm = add_norm(NormKind::root_mean_square, prefix + s.q_norm, s.head_dim);
      o_.k_norm = add_norm(NormKind::root_mean_square, prefix + s.k_norm, s.head_dim);
    }
    end_product();
    add_layers(o_.projection, prefix, s.projection, s.query_width(), CutSide::inputs, s.input_major);
    if (s.mlp_norm_with_up) end_product();
    o_.mlp_norm = add_norm(s.norm, prefix + s.mlp_norm, s.hidden);
    if (!s.mlp_norm_with_up) end_product();
    add_layers(o_.up, prefix, s.up, s.hidden, CutSide::outputs, s.input_major);
    end_product();
    add_layers(o_.down, prefix, s.down, s.inner, CutSide::inputs, s.input_major);
    end_block();
  }
  const Offsets& offsets() const { return o_; }

 private:
  std::size_t saving_products() const override { return kDown; }

  void forward_of(Lane& lane, const Context& c, std::size_t product, ConstView x, View y, View saved) const override {
    const BlockPlan& b = plan_of(c);
    const PreNormBlockSpec& s = b.spec;
    const View scratch = b.scratch.of(c.workspace), narrow = b.narrow.of(c.workspace).sub(0, b.tokens * s.hidden);
    const View inner = b.inner.of(saved), active = b.active.of(saved);
    const std::size_t stacked = b.tokens * b.shards.count, width = s.inner / b.shards.of;
    switch (product) {
      case kAttention:
        return forward_attention(lane, b, c, x, saved);
      case kProjection:
        return b.projection.forward(lane, c.parameters, b.mixed.of(saved), sum_in(c, narrow), scratch, {},
                                    adapter_dropout(c, b.projection_at));
      case kUp:
        if (s.mlp_norm_with_up) forward_mlp_norm(lane, b, c, saved);
        b.up.forward(lane, c.parameters, b.normed2.of(saved), inner, scratch,
                     s.mlp == MlpKind::gelu_tanh ? active : View{}, adapter_dropout(c, b.up_at));
        if (s.mlp == MlpKind::swiglu) swiglu_forward(lane, stacked, width, inner, active);
        if (s.mlp == MlpKind::geglu) geglu_forward(lane, stacked, width, inner, active);
        return;
      case kDown:
        if (makes_output(c, y))
          b.down.forward(lane, c.parameters, active, sum_in(c, narrow), scratch, {}, adapter_dropout(c, b.down_at));
        return;
    }
  }
  void after_forward(Lane& lane, const Context& c, std::size_t product, ConstView x, View y,
                     View saved) const override {
    const BlockPlan& b = plan_of(c);
    const ConstView sum = sum_of(c, b.narrow.of(c.workspace).sub(0, b.tokens * b.hidden));
    const View middle = b.middle.of(saved);
    if (product == kProjection) {
      dropout(lane, residual_dropout(c, 1), sum, x, middle);
      if (!b.spec.mlp_norm_with_up) forward_mlp_norm(lane, b, c, saved);
    } else if (y) {
      dropout(lane, residual_dropout(c, 2), sum, middle, y);
    }
  }

  // From product to product, `narrow` holds the gradients of the MLP norm's output and of the mixed heads, `wide` those
  // of `inner` and of the heads, and dx that of the residual stream.
  void backward_of(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved, ConstView dy,
                   View dx, const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const PreNormBlockSpec& s = b.spec;
    const View scratch = b.scratch.of(c.workspace), dropped = b.dropped.of(c.workspace);
    const View d_normed = b.narrow.of(c.workspace).sub(0, b.tokens * s.hidden);
    const View d_mixed = b.narrow.of(c.workspace).sub(0, b.tokens * b.shards.share(s.query_width()));
    const View d_inner = b.wide.of(c.workspace).sub(0, b.tokens * b.up.out());
    const std::size_t stacked = b.tokens * b.shards.count, width = s.inner / b.shards.of;
    switch (product) {
      case kDown: {
        const ConstView inner = b.inner.of(saved), d_down = through_dropout(lane, residual_dropout(c, 2), dy, dropped);
        const ConstView active = b.active.of(saved);
        if (s.mlp == MlpKind::gelu_tanh)
          return b.down.backward(lane, c.parameters, active, d_down, d_inner, gradients, scratch, inner,
                                 adapter_dropout(c, b.down_at));
        const View d_active = b.d_active.of(c.workspace);
        b.down.backward(lane, c.parameters, active, d_down, d_active, gradients, scratch, {},
                        adapter_dropout(c, b.down_at));
        if (s.mlp == MlpKind::swiglu) swiglu_backward(lane, stacked, width, d_active, inner, d_inner);
        if (s.mlp == MlpKind::geglu) geglu_backward(lane, stacked, width, d_active, inner, d_inner);
        return;
      }
      case kUp:
        return b.up.backward(lane, c.parameters, b.normed2.of(saved), d_inner, sum_in(c, d_normed), gradients, scratch,
                             {}, adapter_dropout(c, b.up_at));
      case kProjection: {
        if (!s.mlp_norm_with_up) backward_mlp_norm(lane, c, sum_of(c, d_normed), saved, dy, dx, gradients);
        const ConstView d_projection = through_dropout(lane, residual_dropout(c, 1), dx, dropped);
        b.projection.backward(lane, c.parameters, b.mixed.of(saved), d_projection, d_mixed, gradients, scratch, {},
                              adapter_dropout(c, b.projection_at));
        return;
      }
      case kAttention:
        return backward_attention(lane, c, x, saved, d_mixed, sum_in(c, d_normed), gradients);
    }
  }
  void after_backward(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved, ConstView dy,
                      View dx, const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const ConstView d_normed = sum_of(c, b.narrow.of(c.workspace).sub(0, b.tokens * b.hidden));
    if (product == kUp) {
      if (b.spec.mlp_norm_with_up) backward_mlp_norm(lane, c, d_normed, saved, dy, dx, gradients);
      return;
    }
    if (c.total) write_gains(lane, c, gradients);
    if (b.layer.has_norm)
      b.attention_norm.backward(lane, c.parameters, d_normed, x, b.mean1.of(saved), b.rstd1.of(saved), dx, dx,
                                gradients, b.scratch.of(c.workspace), b.no_bias.of(c.workspace));
    else
      add_residual(lane, d_normed, dx, dx);
  }
  void backward_parameters_of(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved,
                              const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), wide = b.wide.of(c.workspace);
    if (product == kUp)
      return b.up.backward_parameters(lane, b.normed2.of(saved), wide.sub(0, b.tokens * b.up.out()), gradients,
                                      scratch);
    b.qkv.backward_parameters(lane, b.layer.has_norm ? b.normed1.of(saved) : x, wide.sub(0, b.tokens * b.qkv.out()),
                              gradients, scratch);
  }
  // After attention's gradient, those of the heads' norms cross with it.
  Seam seam_after(Pass pass, std::size_t product) const override {
    const BlockPlan& b = *plan_;
    const std::size_t rows = b.tokens * b.hidden;
    if (pass == Pass::forward) return {rows, product == kProjection ? b.projection.bias() : b.down.bias()};
    return {rows + (product == kAttention && !b.spec.q_norm.empty() ? 2 * b.spec.head_dim : 0)};
  }

  NormOffsets add_norm(NormKind kind, const std::string& name, std::size_t width) {
    const auto n = static_cast<std::int64_t>(width);
    const std::size_t gain = add_parameter(name + ".weight", {n}, false, {1, 0});
    return {gain, kind == NormKind::layer ? add_parameter(name + ".bias", {n}, false, {0, 0}) : 0};
  }
  void forward_attention(Lane& lane, const BlockPlan& b, const Context& c, ConstView x, View saved) const {
    const View scratch = b.scratch.of(c.workspace), heads = b.heads.of(saved);
    if (b.layer.has_norm) {
      const View normed = b.normed1.of(saved);
      b.attention_norm.forward(lane, c.parameters, x, normed, b.mean1.of(saved), b.rstd1.of(saved),
                               b.no_bias.of(c.workspace));
      x = normed;
    }
    if (b.spec.q_norm.empty()) {
      b.qkv.forward(lane, c.parameters, x, heads, scratch, {}, adapter_dropout(c, 0));
    } else {
      const View raw = b.raw.of(saved);
      b.qkv.forward(lane, c.parameters, x, raw, scratch, {}, adapter_dropout(c, 0));
      cast(lane, raw, heads);  // v, and what the norms below overwrite
      const AttentionPart& a = b.attention;
      for (std::size_t v = 0; v < b.shards.count; ++v) {
        const View from = b.shard(raw, v), to = b.shard(heads, v);
        b.q_norm.forward(lane, c.parameters, a.queries(from), a.queries(to), {}, b.shard(b.q_rstd.of(saved), v));
        b.k_norm.forward(lane, c.parameters, a.keys(from), a.keys(to), {}, b.shard(b.k_rstd.of(saved), v));
      }
    }
    for (std::size_t v = 0; v < b.shards.count; ++v) {
      rotate(lane, b, c, b.shard(heads, v), false);
      b.attention.forward(lane, c, b.shard(heads, v), b.shard(b.mixed.of(saved), v), b.shard(b.lse.of(saved), v),
                          attention_dropout(c), scratch, v);
    }
  }

  void backward_attention(Lane& lane, const Context& c, ConstView x, ConstView saved, ConstView d_mixed, View d_normed,
                          const GradientRange& gradients) const {
    const BlockPlan& b = *plan_;
    const AttentionPart& a = b.attention;
    const View scratch = b.scratch.of(c.workspace);
    const View d_heads = b.wide.of(c.workspace).sub(0, b.tokens * b.shards.share(b.spec.qkv_width()));
    const ConstView heads = b.heads.of(saved), mixed = b.mixed.of(saved), lse = b.lse.of(saved);
    for (std::size_t v = 0; v < b.shards.count; ++v) {
      a.backward(lane, c, b.shard(heads, v), b.shard(mixed, v), b.shard(lse, v), b.shard(d_mixed, v),
                 b.shard(d_heads, v), attention_dropout(c), scratch, v);
      rotate(lane, b, c, b.shard(d_heads, v), true);
    }
    if (!b.spec.q_norm.empty()) {
      // The gradients of the gains are sums over the shards' heads. Those of one shard are kept in fp32 until the tree.
      const std::size_t dim = b.spec.head_dim;
      const View d_q = b.d_q_gain.of(c.workspace), d_k = b.d_k_gain.of(c.workspace);
      for (std::size_t v = 0; v < b.shards.count; ++v) {
        const ConstView from = b.shard(b.raw.of(saved), v);
        const View to = b.shard(d_heads, v);
        const bool whole = b.shards.of == 1;
        const GradientRange q = whole ? gradients : GradientRange{d_q.sub(v * dim, dim), o_.q_norm.gain};
        const GradientRange k = whole ? gradients : GradientRange{d_k.sub(v * dim, dim), o_.k_norm.gain};
        b.q_norm.backward(lane, c.parameters, a.queries(to), a.queries(from), {}, b.shard(b.q_rstd.of(saved), v), {},
                          a.queries(to), q, scratch);
        b.k_norm.backward(lane, c.parameters, a.keys(to), a.keys(from), {}, b.shard(b.k_rstd.of(saved), v), {},
                          a.keys(to), k, scratch);
      }
      if (b.shards.of > 1) sum_gains(lane, c, gradients);
    }
    const ConstView normed = b.layer.has_norm ? b.normed1.of(saved) : x;
    b.qkv.backward(lane, c.parameters, normed, d_heads, d_normed, gradients, scratch, {}, adapter_dropout(c, 0));
  }
  // Adds the gains' gradients of this rank's shards: they are whole, or follow the partial sum of the input's gradient.
  void sum_gains(Lane& lane, const Context& c, const GradientRange& gradients) const {
    const BlockPlan& b = *plan_;
    const std::size_t dim = b.spec.head_dim, rows = b.tokens * b.hidden, count = b.shards.count;
    const auto sum = [&](std::size_t gain, View partials, std::size_t place) {
      if (is_frozen(gain)) return;
      tree_sum(lane, count, partials, {}, shared() ? c.partial.sub(rows + place * dim, dim) : gradients.sub(gain, dim));
    };
    sum(o_.q_norm.gain, b.d_q_gain.of(c.workspace), 0);
    sum(o_.k_norm.gain, b.d_k_gain.of(c.workspace), 1);
  }
  void write_gains(Lane& lane, const Context& c, const GradientRange& gradients) const {
    const BlockPlan& b = *plan_;
    if (b.spec.q_norm.empty()) return;
    const std::size_t dim = b.spec.head_dim, rows = b.tokens * b.hidden;
    const auto write = [&](std::size_t gain, std::size_t place) {
      if (!is_frozen(gain)) cast(lane, c.total.sub(rows + place * dim, dim), gradients.sub(gain, dim));
    };
    write(o_.q_norm.gain, 0);
    write(o_.k_norm.gain, 1);
  }

  static void forward_mlp_norm(Lane& lane, const BlockPlan& b, const Context& c, View saved) {
    b.mlp_norm.forward(lane, c.parameters, b.middle.of(saved), b.normed2.of(saved), b.mean2.of(saved),
                       b.rstd2.of(saved), b.no_bias.of(c.workspace));
  }
  void backward_mlp_norm(Lane& lane, const Context& c, ConstView d_normed, ConstView saved, ConstView dy, View dx,
                         const GradientRange& gradients) const {
    const BlockPlan& b = *plan_;
    b.mlp_norm.backward(lane, c.parameters, d_normed, b.middle.of(saved), b.mean2.of(saved), b.rstd2.of(saved), dy, dx,
                        gradients, b.scratch.of(c.workspace), b.no_bias.of(c.workspace));
  }

  // Rotates a shard's queries and keys by their rows' positions.
  static void rotate(Lane& lane, const BlockPlan& b, const Context& c, View heads, bool inverse) {
    if (!b.layer.angles) return;
    const PreNormBlockSpec& s = b.spec;
    const std::size_t table = s.positions * (s.head_dim / 2);
    const std::byte* const angles = c.constants + *b.layer.angles;
    const ConstView cos{angles, table, DType::fp32}, sin{angles + table * sizeof(float), table, DType::fp32};
    const std::size_t stride = s.qkv_width() / b.shards.of;
    rope(lane, {b.tokens, s.heads / b.shards.of, s.head_dim, stride}, b.attention.queries(heads), c.batch.positions,
         cos, sin, inverse);
    rope(lane, {b.tokens, s.kv_heads / b.shards.of, s.head_dim, stride}, b.attention.keys(heads), c.batch.positions,
         cos, sin, inverse);
  }

  device::Dropout attention_dropout(const Context& c) const { return dropout_at(c, 0, plan_->spec.attention_dropout); }
  // For the outputs of the projection (1) and the MLP (2).
  device::Dropout residual_dropout(const Context& c, std::uint32_t place) const {
    return dropout_at(c, place, plan_->spec.residual_dropout);
  }

  Offsets o_{};
};

}  // namespace

void add_pre_norm_blocks(std::vector<std::unique_ptr<Unit>>& units, const PreNormBlockSpec& spec, const RunShape& run) {
  require_whole_shards(run, spec.heads, spec.kv_heads, spec.inner);
  add_blocks<Block, BlockPlan>(units, spec, spec.layers.size(), run,
                               [&](std::size_t layer) { return spec.layers[layer]; });
}

}  // namespace strata::models
