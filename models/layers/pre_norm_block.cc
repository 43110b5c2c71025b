#include "models/layers/pre_norm_block.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "device/ops/activation.h"
#include "device/ops/attention/rope.h"
#include "device/ops/dropout.h"
#include "device/ops/elementwise.h"
#include "models/layers/attention_part.h"
#include "models/layers/block_unit.h"
#include "models/layers/head_norms.h"
#include "models/layers/shared_keys.h"
#include "models/layers/slots.h"
#include "models/layers/split_linear.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

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
                        run.own_rows().size(),
                        run.dtype,
                        run.threads,
                        AttentionPart({.heads = s.heads / run.shards.of,
                                       .kv_heads = std::max<std::size_t>(1, s.kv_heads / run.shards.of),
                                       .head_dim = s.head_dim,
                                       .window = kind.window,
                                       .causal = s.causal,
                                       .dropout = s.attention_dropout,
                                       .shards = run.shards,
                                       .shared_keys = run.shards.of > s.kv_heads},
                                      run),
                        linear(s, run, CutSide::outputs, s.hidden, o.qkv, s.qkv.biased),
                        linear(s, run, CutSide::inputs, s.query_width(), o.projection, s.projection.biased),
                        linear(s, run, CutSide::outputs, s.hidden, o.up, s.up.biased, gelu_of(s)),
                        linear(s, run, CutSide::inputs, s.inner, o.down, s.down.biased, Gelu::none,
                               /*gelu_before=*/gelu_of(s))},
        spec(s),
        layer(kind),
        shards(run.shards),
        attention_norm(s.norm, norm_of_rows(rows, s.hidden, s.eps), o.attention_norm.gain, o.attention_norm.bias,
                       run.row_blocks()),
        mlp_norm(s.norm, norm_of_rows(rows, s.hidden, s.eps), o.mlp_norm.gain, o.mlp_norm.bias, run.row_blocks()) {
    const DType t = run.dtype;
    const std::size_t own = rows * s.hidden, means = s.norm == NormKind::root_mean_square ? 0 : rows;
    const std::size_t qkv_width = qkv.out(), query_width = shards.share(s.query_width());
    Slots save, of_heads;
    shared_keys.emplace(SharedKeys::Spec{tokens, s.heads, s.kv_heads, s.head_dim, shards, t}, save, of_heads);
    if (!s.q_norm.empty())
      head_norms.emplace(HeadNorms::Spec{tokens, s.heads, s.kv_heads, s.head_dim, s.eps, o.q_norm.gain, o.k_norm.gain,
                                         shards, shared_keys->sharers()},
                         save, of_heads);
    mean1 = save.add(kind.has_norm ? means : 0, DType::fp32);
    rstd1 = save.add(kind.has_norm ? rows : 0, DType::fp32);
    normed1 = save.add(kind.has_norm ? own : 0, t);
    heads = save.add(tokens * qkv_width, t);
    raw = save.add(head_norms ? tokens * qkv_width : 0, t);
    mixed = save.add(tokens * query_width, t);
    lse = save.add(tokens * shards.share(s.heads), DType::fp32);
    middle = save.add(own, t);
    mean2 = save.add(means, DType::fp32);
    rstd2 = save.add(rows, DType::fp32);
    normed2 = save.add(own, t);
    inner = save.add(tokens * up.out(), t);
    active = save.add(tokens * shards.share(s.inner), t);
    bytes.saved = save.bytes();
    bytes.cache = attention.cache_bytes();

    Slots work;
    const std::size_t norms = std::max(mlp_norm.scratch_bytes(), head_norms ? head_norms->scratch_bytes() : 0);
    scratch = work.add_bytes(std::max(scratch_bytes(), norms));
    narrow = work.add(std::max(own, tokens * query_width), t);
    no_bias = work.add(s.norm == NormKind::layer_without_bias ? s.hidden : 0, t);
    bytes.forward_workspace = work.bytes();
    wide = work.add(tokens * std::max(up.out(), qkv_width), t);
    d_active = work.add(s.mlp == MlpKind::gelu_tanh ? 0 : tokens * shards.share(s.inner), t);
    dropped = work.add(s.residual_dropout > 0 && !run.divides_rows() ? own : 0, t);
    of_keys = work.add_bytes(of_heads.bytes());
    whole_input = work.add(run.divides_rows() && shared_keys->crossing() > 0 ? tokens * s.hidden : 0, t);
    norm_sums1 = work.add(kind.has_norm ? attention_norm.sums() : 0, DType::fp32);
    norm_sums2 = work.add(mlp_norm.sums(), DType::fp32);
    place_sums(work);
    bytes.backward_workspace = work.bytes();
  }
  static Gelu gelu_of(const PreNormBlockSpec& s) { return s.mlp == MlpKind::gelu_tanh ? Gelu::tanh : Gelu::none; }
  static SplitLinear linear(const PreNormBlockSpec& s, const RunShape& run, CutSide side, std::size_t in,
                            const SplitLinear::Offsets& offsets, bool biased, Gelu gelu_after = Gelu::none,
                            Gelu gelu_before = Gelu::none) {
    Linear::Spec products{run.tokens(), in, {}, biased, s.input_major, run.dtype, run.device};
    products.gelu_after = gelu_after;
    products.gelu_before = gelu_before;
    products.adapter_dropout = run.adapter_dropout();
    return {side, products, offsets};
  }
  PreNormBlockSpec spec;
  PreNormBlockSpec::Layer layer;
  ShardRange shards;
  // The index of each product's first linear layer in the block.
  std::size_t projection_at = spec.qkv.matrices.size(), up_at = projection_at + spec.projection.matrices.size(),
              down_at = up_at + spec.up.matrices.size();
  NormPart attention_norm, mlp_norm;
  std::optional<SharedKeys> shared_keys;
  std::optional<HeadNorms> head_norms;
  Slot mean1, rstd1, normed1, heads, raw, mixed, lse, middle, mean2, rstd2, normed2, inner, active;      // saved
  Slot scratch, narrow, no_bias, wide, d_active, dropped, of_keys, whole_input, norm_sums1, norm_sums2;  // workspace
};

class Block final : public BlockUnit<BlockPlan> {
 public:
  Block(const PreNormBlockSpec& s, std::size_t layer, const RunShape& run) : BlockUnit(layer, run) {
    const std::string prefix = s.prefix + std::to_string(layer) + ".";
    if (s.layers[layer].has_norm) o_.attention_norm = add_norm(s.norm, prefix + s.attention_norm, s.hidden);
    JoinedLayers qkv = s.qkv;
    if (run.shards.of > s.kv_heads)
      for (std::size_t i = 1; i < qkv.matrices.size(); ++i) qkv.matrices[i].sharers = run.shards.of / s.kv_heads;
    add_layers(o_.qkv, prefix, qkv, s.hidden, CutSide::outputs, s.input_major);
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
    const View scratch = b.scratch.of(c.workspace), narrow = b.narrow.of(c.workspace).sub(0, b.rows * s.hidden);
    const View inner = b.inner.of(saved), active = b.active.of(saved);
    const std::size_t stacked = b.tokens * b.shards.count, width = s.inner / b.shards.of;
    switch (product) {
      case kAttention:
        return forward_qkv(lane, b, c, x, saved);
      case kProjection:
        return b.projection.forward(lane, c.parameters, b.mixed.of(saved), sum_in(c, narrow), scratch, {},
                                    adapter_dropout(c, b.projection_at));
      case kUp:
        if (s.mlp_norm_with_up && !divides_rows()) forward_mlp_norm(lane, b, c, saved);
        b.up.forward(lane, c.parameters, whole_rows(c, b.normed2.of(saved)), inner, scratch,
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
    const ConstView sum = sum_of(c, b.narrow.of(c.workspace).sub(0, b.rows * b.hidden));
    const View middle = b.middle.of(saved);
    if (product == kProjection) {
      dropout(lane, residual_dropout(c, 1), sum, x, middle);
      if (!b.spec.mlp_norm_with_up) forward_mlp_norm(lane, b, c, saved);
    } else if (y) {
      dropout(lane, residual_dropout(c, 2), sum, middle, y);
    }
  }

  void leave_input(Lane& lane, const Context& c, std::size_t product, ConstView x, View saved, View to) const override {
    const BlockPlan& b = plan_of(c);
    if (product == kAttention)
      return cast(lane, b.layer.has_norm ? forward_attention_norm(lane, b, c, x, saved) : x, to);
    if (b.spec.mlp_norm_with_up) forward_mlp_norm(lane, b, c, saved);
    cast(lane, b.normed2.of(saved), to);
  }

  // From product to product, `narrow` holds the gradients of the MLP norm's output and of the mixed heads, `wide` those
  // of `inner` and of the heads, and dx that of the residual stream.
  void backward_of(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved, ConstView dy,
                   View dx, const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const PreNormBlockSpec& s = b.spec;
    const View scratch = b.scratch.of(c.workspace), dropped = b.dropped.of(c.workspace);
    const View d_normed = b.narrow.of(c.workspace).sub(0, b.rows * s.hidden);
    const View d_mixed = d_mixed_in(b, c);
    const View d_inner = b.wide.of(c.workspace).sub(0, b.tokens * b.up.out());
    const std::size_t stacked = b.tokens * b.shards.count, width = s.inner / b.shards.of;
    switch (product) {
      case kDown: {
        const ConstView inner = b.inner.of(saved);
        const ConstView d_down =
            divides_rows() ? whole_rows(c, dy) : through_dropout(lane, residual_dropout(c, 2), dy, dropped);
        const ConstView active = b.active.of(saved);
        if (s.mlp == MlpKind::gelu_tanh)
          return b.down.backward(lane, c.parameters, active, d_down, d_inner, gradients, scratch, inner,
                                 adapter_dropout(c, b.down_at), b.factor_sums[kDown].of(c.workspace));
        const View d_active = b.d_active.of(c.workspace);
        b.down.backward(lane, c.parameters, active, d_down, d_active, gradients, scratch, {},
                        adapter_dropout(c, b.down_at), b.factor_sums[kDown].of(c.workspace));
        if (s.mlp == MlpKind::swiglu) swiglu_backward(lane, stacked, width, d_active, inner, d_inner);
        if (s.mlp == MlpKind::geglu) geglu_backward(lane, stacked, width, d_active, inner, d_inner);
        return;
      }
      case kUp:
        return b.up.backward(lane, c.parameters, whole_input(c, b.normed2.of(saved)), d_inner, sum_in(c, d_normed),
                             gradients, scratch, {}, adapter_dropout(c, b.up_at), b.factor_sums[kUp].of(c.workspace));
      case kProjection: {
        if (!s.mlp_norm_with_up && !divides_rows())
          backward_mlp_norm(lane, c, sum_of(c, d_normed), saved, dy, dx, gradients);
        const ConstView d_projection =
            divides_rows() ? whole_rows(c, dx) : through_dropout(lane, residual_dropout(c, 1), dx, dropped);
        b.projection.backward(lane, c.parameters, b.mixed.of(saved), d_projection, d_mixed, gradients, scratch, {},
                              adapter_dropout(c, b.projection_at), b.factor_sums[kProjection].of(c.workspace));
        return;
      }
      case kAttention:
        return backward_qkv(lane, c, x, saved, sum_in(c, d_normed), gradients);
    }
  }
  void after_backward(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved, ConstView dy,
                      View dx, const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const ConstView d_normed = sum_of(c, b.narrow.of(c.workspace).sub(0, b.rows * b.hidden));
    if (product == kUp) {
      if (b.spec.mlp_norm_with_up) backward_mlp_norm(lane, c, d_normed, saved, dy, dx, gradients);
      return;
    }
    if (shared() && b.head_norms && !divides_rows())
      b.head_norms->write_gains(lane, c.total.sub(b.rows * b.hidden, gains()), gradients);
    if (b.layer.has_norm)
      b.attention_norm.backward(lane, c.parameters, d_normed, x, b.mean1.of(saved), b.rstd1.of(saved), dx, dx,
                                gradients, b.scratch.of(c.workspace), b.no_bias.of(c.workspace),
                                b.norm_sums1.of(c.workspace));
    else
      add_residual(lane, d_normed, dx, dx);
  }
  void backward_parameters_of(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved,
                              const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), wide = b.wide.of(c.workspace);
    if (product == kUp)
      return b.up.backward_parameters(lane, whole_input(c, b.normed2.of(saved)), wide.sub(0, b.tokens * b.up.out()),
                                      gradients, scratch);
    b.qkv.backward_parameters(lane, qkv_input(c, x, saved), wide.sub(0, b.tokens * b.qkv.out()), gradients, scratch);
  }
  // After attention's gradient, those of the heads' norms cross with it, unless each rank takes its rows alone.
  Seam seam_after(Pass pass, std::size_t product) const override {
    const BlockPlan& b = *plan_;
    const std::size_t rows = b.tokens * b.hidden;
    if (pass == Pass::forward) return {rows, product == kProjection ? b.projection.bias() : b.down.bias()};
    return {rows + (product == kAttention && !divides_rows() ? gains() : 0)};
  }
  void leave_gradient(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved, ConstView dy,
                      View dx, View to, View input) const override {
    const BlockPlan& b = *plan_;
    const bool of_mlp = product == kDown;
    if (!of_mlp && !b.spec.mlp_norm_with_up) backward_mlp_norm(lane, c, c.total.sub(0, dx.size), saved, dy, dx, {});
    // A copy if nothing is dropped.
    dropout(lane, residual_dropout(c, of_mlp ? 2 : 1), of_mlp ? dy : dx, {}, to);
    if (input) cast(lane, of_mlp ? b.normed2.of(saved) : b.layer.has_norm ? b.normed1.of(saved) : x, input);
  }
  // The gains of the heads' norms come after those of the norms of rows.
  std::size_t crossing_gradients() const override {
    const BlockPlan& b = *plan_;
    if (!divides_rows()) return b.crossing();
    return (b.layer.has_norm ? b.attention_norm.crossing() : 0) + b.mlp_norm.crossing() + gains() + b.crossing();
  }
  void leave_gradients(Lane& lane, const Context& c, View to) const override {
    const BlockPlan& b = *plan_;
    std::size_t at = 0;
    const auto next = [&](std::size_t count) { return to.sub(std::exchange(at, at + count), count); };
    b.leave_gradients(lane, c.workspace, next(b.crossing()));
    if (!divides_rows()) return;
    if (b.layer.has_norm)
      b.attention_norm.leave_gradients(lane, b.norm_sums1.of(c.workspace), next(b.attention_norm.crossing()));
    b.mlp_norm.leave_gradients(lane, b.norm_sums2.of(c.workspace), next(b.mlp_norm.crossing()));
    if (b.head_norms) b.head_norms->sum_gains(lane, b.of_keys.of(c.workspace), next(gains()), {});
  }
  void take_gradients(Lane& lane, ConstView from, const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    std::size_t at = 0;
    const auto next = [&](std::size_t count) { return from.sub(std::exchange(at, at + count), count); };
    b.take_gradients(lane, next(b.crossing()), gradients);
    if (!divides_rows()) return;
    if (b.layer.has_norm) b.attention_norm.take_gradients(lane, next(b.attention_norm.crossing()), gradients);
    b.mlp_norm.take_gradients(lane, next(b.mlp_norm.crossing()), gradients);
    if (b.head_norms) b.head_norms->write_gains(lane, next(gains()), gradients);
  }
  // Elements of the gains of the heads' norms, which are sums over the shards' heads.
  std::size_t gains() const { return plan_->head_norms ? plan_->head_norms->gains() : 0; }

  static ConstView forward_attention_norm(Lane& lane, const BlockPlan& b, const Context& c, ConstView x, View saved) {
    const View normed = b.normed1.of(saved);
    b.attention_norm.forward(lane, c.parameters, x, normed, b.mean1.of(saved), b.rstd1.of(saved),
                             b.no_bias.of(c.workspace));
    return normed;
  }
  void forward_qkv(Lane& lane, const BlockPlan& b, const Context& c, ConstView x, View saved) const {
    const View scratch = b.scratch.of(c.workspace), heads = b.heads.of(saved);
    if (divides_rows())
      x = whole_rows(c, x);
    else if (b.layer.has_norm)
      x = forward_attention_norm(lane, b, c, x, saved);
    if (!b.head_norms) {
      b.qkv.forward(lane, c.parameters, x, heads, scratch, {}, adapter_dropout(c, 0));
    } else {
      const View raw = b.raw.of(saved);
      b.qkv.forward(lane, c.parameters, x, raw, scratch, {}, adapter_dropout(c, 0));
      cast(lane, raw, heads);  // v, and what the norms overwrite
      b.head_norms->forward(lane, b.attention, c.parameters, raw, heads, saved);
    }
    rotate(lane, b, c, heads, false);
    b.shared_keys->leave(lane, heads, saved, c.partial);
  }
  void attend(Lane& lane, const Context& c, View saved) const override {
    const BlockPlan& b = plan_of(c);
    b.shared_keys->take(lane, c.total, saved);
    for (std::size_t v = 0; v < b.shards.count; ++v)
      b.attention.forward(lane, c, b.shard(b.heads.of(saved), v), b.shard(b.mixed.of(saved), v),
                          b.shard(b.lse.of(saved), v), attention_dropout(c), b.scratch.of(c.workspace), v,
                          shared_keys(b, saved, v));
  }
  void attend_backward(Lane& lane, const Context& c, ConstView x, ConstView saved) const override {
    const BlockPlan& b = *plan_;
    const View of_keys = b.of_keys.of(c.workspace), d_heads = d_heads_in(b, c), d_mixed = d_mixed_in(b, c);
    for (std::size_t v = 0; v < b.shards.count; ++v)
      b.attention.backward(lane, c, b.shard(b.heads.of(saved), v), b.shard(b.mixed.of(saved), v),
                           b.shard(b.lse.of(saved), v), b.shard(d_mixed, v), b.shard(d_heads, v), attention_dropout(c),
                           b.scratch.of(c.workspace), v, shared_keys(b, saved, v),
                           b.shared_keys->any() ? b.shared_keys->gradients(of_keys, v) : View{});
    b.shared_keys->leave_gradients(lane, of_keys, d_heads, c.partial);
    // The next stretch's total has keys instead of the rows that it needs again.
    if (const View kept = b.whole_input.of(c.workspace); kept.size > 0 && trains())
      cast(lane, whole_input(c, x_of(b, x, saved)), kept);
  }
  static ConstView x_of(const BlockPlan& b, ConstView x, ConstView saved) {
    return b.layer.has_norm ? b.normed1.of(saved) : x;
  }
  ConstView qkv_input(const Context& c, ConstView x, ConstView saved) const {
    const BlockPlan& b = *plan_;
    const View kept = b.whole_input.of(c.workspace);
    return kept.size > 0 && trains() ? kept : whole_input(c, x_of(b, x, saved));
  }
  std::size_t crossing_keys() const override { return plan_->shared_keys->crossing(); }
  static ConstView shared_keys(const BlockPlan& b, ConstView saved, std::size_t v) {
    return b.shared_keys->any() ? b.shared_keys->keys(saved, v) : ConstView{};
  }
  static View d_mixed_in(const BlockPlan& b, const Context& c) {
    return b.narrow.of(c.workspace).sub(0, b.tokens * b.shards.share(b.spec.query_width()));
  }
  static View d_heads_in(const BlockPlan& b, const Context& c) {
    return b.wide.of(c.workspace).sub(0, b.tokens * b.qkv.out());
  }

  void backward_qkv(Lane& lane, const Context& c, ConstView x, ConstView saved, View d_normed,
                    const GradientRange& gradients) const {
    const BlockPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), d_heads = d_heads_in(b, c);
    b.shared_keys->take_gradients(lane, c.total, d_heads);
    rotate(lane, b, c, d_heads, true);
    if (b.head_norms) {
      const View sums = b.of_keys.of(c.workspace);
      b.head_norms->backward(lane, b.attention, c.parameters, b.raw.of(saved), saved, d_heads, gradients, sums,
                             scratch);
      if (b.shards.of > 1 && !divides_rows())
        b.head_norms->sum_gains(lane, sums, shared() ? c.partial.sub(b.tokens * b.hidden, gains()) : View{}, gradients);
    }
    b.qkv.backward(lane, c.parameters, qkv_input(c, x, saved), d_heads, d_normed, gradients, scratch, {},
                   adapter_dropout(c, 0), b.factor_sums[kAttention].of(c.workspace));
  }
  static void forward_mlp_norm(Lane& lane, const BlockPlan& b, const Context& c, View saved) {
    b.mlp_norm.forward(lane, c.parameters, b.middle.of(saved), b.normed2.of(saved), b.mean2.of(saved),
                       b.rstd2.of(saved), b.no_bias.of(c.workspace));
  }
  void backward_mlp_norm(Lane& lane, const Context& c, ConstView d_normed, ConstView saved, ConstView dy, View dx,
                         const GradientRange& gradients) const {
    const BlockPlan& b = *plan_;
    b.mlp_norm.backward(lane, c.parameters, d_normed, b.middle.of(saved), b.mean2.of(saved), b.rstd2.of(saved), dy, dx,
                        gradients, b.scratch.of(c.workspace), b.no_bias.of(c.workspace), b.norm_sums2.of(c.workspace));
  }

  // Rotates the shards' queries and keys by their rows' positions.
  static void rotate(Lane& lane, const BlockPlan& b, const Context& c, View heads, bool inverse) {
    if (!b.layer.angles) return;
    const PreNormBlockSpec& s = b.spec;
    const std::size_t table = s.positions * (s.head_dim / 2);
    const std::byte* const angles = c.constants + *b.layer.angles;
    const ConstView cos{angles, table, DType::fp32}, sin{angles + table * sizeof(float), table, DType::fp32};
    const device::AttentionShape& a = b.attention.shape();
    for (std::size_t v = 0; v < b.shards.count; ++v) {
      const View rows = b.shard(heads, v);
      const auto turn = [&](std::size_t count, View first) {
        rope(lane, {b.tokens, count, s.head_dim, a.q_stride}, first, c.batch.positions, cos, sin, inverse);
      };
      turn(a.heads, b.attention.queries(rows));
      if (b.shared_keys->owns(v)) turn(a.kv_heads, b.attention.keys(rows));
    }
  }

  device::Dropout attention_dropout(const Context& c) const { return dropout_at(c, 0, plan_->spec.attention_dropout); }
  // For the outputs of the projection (1) and the MLP (2).
  device::Dropout residual_dropout(const Context& c, std::uint32_t place) const {
    return row_dropout_at(c, place, plan_->spec.residual_dropout);
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
