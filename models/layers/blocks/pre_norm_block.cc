#include <algorithm>
#include <utility>

#include "device/ops/activation.h"
#include "device/ops/elementwise.h"
#include "models/layers/blocks/block_attention.h"
#include "models/layers/blocks/block_unit.h"
#include "models/layers/blocks/blocks.h"
#include "models/layers/linear/split_linear.h"
#include "models/layers/slots.h"

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
  BlockPlan(const PreNormBlockSpec& s, const RunShape& run, const Offsets& o, const PreNormBlockSpec::Layer& kind,
            const BackwardEnd& backward_end)
      : BlockOperations{run.tokens(),
                        s.hidden,
                        run.own_rows().size(),
                        run.dtype,
                        run.threads,
                        backward_end,
                        {attention_of(s, o, kind), run},
                        linear(run, CutSide::outputs, s.hidden, o.qkv, s.qkv.biased, s.input_major,
                               backward_end.passes(BlockStep::heads)),
                        linear(run, CutSide::inputs, s.query_width(), o.projection, s.projection.biased, s.input_major,
                               backward_end.passes(BlockStep::projection)),
                        linear(run, CutSide::outputs, s.hidden, o.up, s.up.biased, s.input_major,
                               backward_end.passes(BlockStep::up), gelu_of(s)),
                        linear(run, CutSide::inputs, s.inner, o.down, s.down.biased, s.input_major,
                               backward_end.passes(BlockStep::down), Gelu::none, /*gelu_before=*/gelu_of(s))},
        spec(s),
        layer(kind),
        shards(run.shards),
        attention_norm(s.norm, norm_of_rows(rows, s.hidden, s.eps), o.attention_norm.gain, o.attention_norm.bias,
                       run.row_blocks()),
        mlp_norm(s.norm, norm_of_rows(rows, s.hidden, s.eps), o.mlp_norm.gain, o.mlp_norm.bias, run.row_blocks()) {
    const DType t = run.dtype;
    const std::size_t own = rows * s.hidden, means = s.norm == NormKind::root_mean_square ? 0 : rows;
    const bool attends = backward_end.passes(BlockStep::projection), activates = backward_end.passes(BlockStep::down);
    Placed place;
    Slots& with_input_norm = place.needed(backward_end.reaches(BlockStep::input_norm));
    mean1 = with_input_norm.add(kind.has_norm ? means : 0, DType::fp32);
    rstd1 = with_input_norm.add(kind.has_norm ? rows : 0, DType::fp32);
    normed1 = place.needed(backward_end.reaches(BlockStep::heads)).add(kind.has_norm ? own : 0, t);
    attention.place_saved(place.needed(attends), place.needed(backward_end.reaches(BlockStep::projection)));
    Slots& with_mlp_norm = place.needed(backward_end.reaches(BlockStep::middle_norm));
    middle = with_mlp_norm.add(own, t);
    mean2 = with_mlp_norm.add(means, DType::fp32);
    rstd2 = with_mlp_norm.add(rows, DType::fp32);
    normed2 = place.needed(backward_end.reaches(BlockStep::up)).add(own, t);
    inner = place.needed(activates).add(tokens * up.out(), t);
    active = place.needed(true).add(tokens * shards.share(s.inner), t);
    place_cache(run.cache > 0);

    Slots work;
    place_squares(shards, place.needed(true), work);
    scratch = work.add_bytes(std::max(scratch_bytes(), mlp_norm.scratch_bytes()));
    narrow = work.add(std::max(own, attends ? attention.mixed_size() : 0), t);
    no_bias = work.add(s.norm == NormKind::layer_without_bias ? s.hidden : 0, t);
    end_forward_workspace(work, place);
    wide = work.add(std::max(activates ? tokens * up.out() : 0, attends ? attention.rows_size() : 0), t);
    d_active = work.add(activates && gated() ? tokens * shards.share(s.inner) : 0, t);
    dropped = work.add(s.residual_dropout > 0 && !run.divides_rows() ? own : 0, t);
    if (attends) attention.place_work(work);
    const bool keeps_input =
        backward_end.reaches(BlockStep::heads) && run.divides_rows() && attention.crossing_keys() > 0;
    gathered_input = work.add(keeps_input ? tokens * s.hidden : 0, t);
    norm_sums1 =
        work.add(backward_end.reaches(BlockStep::input_norm) && kind.has_norm ? attention_norm.sums() : 0, DType::fp32);
    norm_sums2 = work.add(backward_end.reaches(BlockStep::middle_norm) ? mlp_norm.sums() : 0, DType::fp32);
    place_sums(work);
    bytes.backward_workspace = work.bytes();
  }
  static BlockAttention::Spec attention_of(const PreNormBlockSpec& s, const Offsets& o,
                                           const PreNormBlockSpec::Layer& kind) {
    BlockAttention::Spec spec{s.heads,  s.kv_heads,          s.head_dim,  kind.window,
                              s.causal, s.attention_dropout, kind.angles, s.positions};
    if (!s.q_norm.empty()) spec.norms = {s.eps, o.q_norm.gain, o.k_norm.gain};
    return spec;
  }
  // The GELU between the two layers of an MLP; none if the MLP has a gate.
  static Gelu gelu_of(const PreNormBlockSpec& s) {
    return s.mlp == MlpKind::gelu_tanh ? Gelu::tanh : s.mlp == MlpKind::gelu_erf ? Gelu::erf : Gelu::none;
  }
  bool gated() const { return gelu_of(spec) == Gelu::none; }
  PreNormBlockSpec spec;
  PreNormBlockSpec::Layer layer;
  ShardRange shards;
  // The index of each product's first linear layer in the block.
  std::size_t projection_at = spec.qkv.matrices.size(), up_at = projection_at + spec.projection.matrices.size(),
              down_at = up_at + spec.up.matrices.size();
  NormPart attention_norm, mlp_norm;
  Slot mean1, rstd1, normed1, middle, mean2, rstd2, normed2, inner, active;  // saved
  Slot no_bias, d_active, dropped, gathered_input, norm_sums1, norm_sums2;   // workspace
};

class Block final : public BlockUnit<BlockPlan> {
 public:
  Block(const PreNormBlockSpec& s, std::size_t layer, const RunShape& run) : BlockUnit(layer, run) {
    const std::string prefix = s.prefix + std::to_string(layer) + ".";
    if (s.layers[layer].has_norm)
      o_.attention_norm = add_norm(BlockStep::input_norm, s.norm, prefix + s.attention_norm, s.hidden);
    JoinedLayers qkv = s.qkv;
    if (run.shards.of > s.kv_heads) {
      STRATA_CHECK_EQ(qkv.matrices.size(), 3u);
      for (const std::size_t i : {1u, 2u}) qkv.matrices[i].sharers = run.shards.of / s.kv_heads;
    }
    add_layers(o_.qkv, prefix, qkv, s.hidden, CutSide::outputs, s.input_major);
    if (!s.q_norm.empty()) {
      o_.q_norm = add_norm(BlockStep::head_norms, NormKind::root_mean_square, prefix + s.q_norm, s.head_dim);
      o_.k_norm = add_norm(BlockStep::head_norms, NormKind::root_mean_square, prefix + s.k_norm, s.head_dim);
    }
    end_product();
    add_layers(o_.projection, prefix, s.projection, s.query_width(), CutSide::inputs, s.input_major);
    if (s.mlp_norm_with_up) end_product();
    o_.mlp_norm = add_norm(BlockStep::middle_norm, s.norm, prefix + s.mlp_norm, s.hidden);
    if (!s.mlp_norm_with_up) end_product();
    add_layers(o_.up, prefix, s.up, s.hidden, CutSide::outputs, s.input_major);
    end_product();
    add_layers(o_.down, prefix, s.down, s.inner, CutSide::inputs, s.input_major);
    end_block();
  }
  const Offsets& offsets() const { return o_; }
  bool input_in_backward() const override {
    return reaches(plan_->layer.has_norm ? BlockStep::input_norm : BlockStep::heads);
  }

 private:
  std::size_t saving_products() const override { return kDown; }
  std::size_t middle_norm_product() const override { return plan_->spec.mlp_norm_with_up ? kUp : kProjection; }

  void forward_of(Lane& lane, const Context& c, std::size_t product, ConstView x, View y,
                  const ActivationViews& saved) const override {
    const BlockPlan& b = plan_of(c);
    const PreNormBlockSpec& s = b.spec;
    const View scratch = b.scratch.of(c.workspace), narrow = b.narrow.of(c.workspace).sub(0, b.rows * s.hidden);
    const View inner = b.inner.of(saved), active = b.active.of(saved);
    const std::size_t stacked = b.tokens * b.shards.count, width = s.inner / b.shards.of;
    switch (product) {
      case kAttention:
        return forward_qkv(lane, b, c, x, saved);
      case kProjection:
        return b.projection.forward(lane, c.parameters, b.attention.mixed(saved), sum_in(c, narrow), scratch, {},
                                    adapter_dropout(c, b.projection_at), b.projection_squares(saved),
                                    b.kept(c, kProjection));
      case kUp:
        if (s.mlp_norm_with_up && !divides_rows()) forward_mlp_norm(lane, b, c, saved);
        b.up.forward(lane, c.parameters, gathered_rows(c, b.normed2.of(saved)), inner, scratch,
                     b.gated() ? View{} : active, adapter_dropout(c, b.up_at), {}, b.kept(c, kUp));
        if (b.gated()) gated_forward(lane, gate(), stacked, width, inner, active);
        return;
      case kDown:
        if (makes_output(c, y))
          b.down.forward(lane, c.parameters, active, sum_in(c, narrow), scratch, {}, adapter_dropout(c, b.down_at),
                         b.down_squares(saved), b.kept(c, kDown));
        return;
    }
  }
  void after_forward(Lane& lane, const Context& c, std::size_t product, ConstView x, View y,
                     const ActivationViews& saved) const override {
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

  void leave_input(Lane& lane, const Context& c, std::size_t product, ConstView x, const ActivationViews& saved,
                   View to) const override {
    const BlockPlan& b = plan_of(c);
    if (product == kAttention)
      return cast(lane, b.layer.has_norm ? forward_attention_norm(lane, b, c, x, saved) : x, to);
    if (b.spec.mlp_norm_with_up) forward_mlp_norm(lane, b, c, saved);
    cast(lane, b.normed2.of(saved), to);
  }

  // Between products, `narrow` holds the gradients of the MLP norm's output and of the mixed heads, `wide` those of
  // `inner` and of the heads, and dx that of the residual stream.
  void backward_of(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved, ConstView dy,
                   View dx, const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const PreNormBlockSpec& s = b.spec;
    const View scratch = b.scratch.of(c.workspace), dropped = b.dropped.of(c.workspace);
    const View d_normed = b.narrow.of(c.workspace).sub(0, b.rows * s.hidden);
    const std::size_t stacked = b.tokens * b.shards.count, width = s.inner / b.shards.of;
    switch (product) {
      case kDown: {
        const bool activates = passes(BlockStep::down);
        const ConstView inner = activates ? b.inner.of(saved) : ConstView{};
        const View d_inner = inner_gradient(c);
        const ConstView d_down =
            divides_rows() ? gathered_rows(c, dy) : through_dropout(lane, residual_dropout(c, 2), dy, dropped);
        const ConstView active = b.active.of(saved);
        if (!b.gated())
          return b.down.backward(lane, c.parameters, active, d_down, d_inner, gradients, scratch, inner,
                                 adapter_dropout(c, b.down_at), b.factor_sums[kDown].of(c.workspace),
                                 b.down_squares(saved));
        const View d_active = activates ? b.d_active.of(c.workspace) : View{};
        b.down.backward(lane, c.parameters, active, d_down, d_active, gradients, scratch, {},
                        adapter_dropout(c, b.down_at), b.factor_sums[kDown].of(c.workspace), b.down_squares(saved));
        if (activates) gated_backward(lane, gate(), stacked, width, d_active, inner, d_inner);
        return;
      }
      case kUp:
        return b.up.backward(lane, c.parameters, gathered_input(c, b.normed2.of(saved)), inner_gradient(c),
                             sum_in(c, d_normed), gradients, scratch, {}, adapter_dropout(c, b.up_at),
                             b.factor_sums[kUp].of(c.workspace));
      case kProjection: {
        if (!s.mlp_norm_with_up && !divides_rows())
          backward_mlp_norm(lane, c, sum_of(c, d_normed), saved, dy, dx, gradients);
        if (!reaches(BlockStep::projection)) return;
        const View d_mixed = passes(BlockStep::projection) ? b.d_mixed(c.workspace) : View{};
        const ConstView d_projection =
            divides_rows() ? gathered_rows(c, dx) : through_dropout(lane, residual_dropout(c, 1), dx, dropped);
        b.projection.backward(lane, c.parameters, b.attention.mixed(saved), d_projection, d_mixed, gradients, scratch,
                              {}, adapter_dropout(c, b.projection_at), b.factor_sums[kProjection].of(c.workspace),
                              b.projection_squares(saved));
        return;
      }
      case kAttention:
        return backward_qkv(lane, c, x, saved, sum_in(c, d_normed), gradients);
    }
  }
  void after_backward(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved, ConstView dy,
                      View dx, const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const View narrow = b.narrow.of(c.workspace).sub(0, b.rows * b.hidden);
    const ConstView d_normed = passes(step_of(product)) ? sum_of(c, narrow) : ConstView{};
    if (product == kUp) {
      if (b.spec.mlp_norm_with_up && reaches(BlockStep::middle_norm))
        backward_mlp_norm(lane, c, d_normed, saved, dy, dx, gradients);
      return;
    }
    if (shared() && !divides_rows() && gains() > 0)
      b.attention.write_gains(lane, c.total.sub(summed_rows(kAttention), gains()), gradients);
    if (!passes(BlockStep::heads)) return;
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
    const View scratch = b.scratch.of(c.workspace);
    if (product == kUp)
      return b.up.backward_parameters(lane, gathered_input(c, b.normed2.of(saved)), inner_gradient(c), gradients,
                                      scratch);
    b.qkv.backward_parameters(lane, qkv_input(c, x, saved), b.d_rows(c.workspace), gradients, scratch);
  }
  // Gradients of the heads' norms cross together with attention's gradient, unless the ranks divide the rows.
  Seam seam_after(Pass pass, std::size_t product) const override {
    const BlockPlan& b = *plan_;
    if (pass == Pass::forward)
      return {b.tokens * b.hidden, product == kProjection ? b.projection.bias() : b.down.bias()};
    return {summed_rows(product) + (product == kAttention && !divides_rows() ? gains() : 0)};
  }
  void write_partial_gradient(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved,
                              ConstView dy, View dx, View to, View input) const override {
    const BlockPlan& b = *plan_;
    const bool of_mlp = product == kDown;
    if (!of_mlp && !b.spec.mlp_norm_with_up) backward_mlp_norm(lane, c, c.total.sub(0, dx.size), saved, dy, dx, {});
    if (!to) return;
    // A copy if nothing is dropped.
    dropout(lane, residual_dropout(c, of_mlp ? 2 : 1), of_mlp ? dy : dx, {}, to);
    if (input) cast(lane, of_mlp ? b.normed2.of(saved) : b.layer.has_norm ? b.normed1.of(saved) : x, input);
  }
  // The gains of the heads' norms come after the gains of the norms of rows.
  std::size_t crossing_gradients() const override {
    const BlockPlan& b = *plan_;
    if (!divides_rows()) return b.crossing();
    return (b.layer.has_norm ? b.attention_norm.crossing() : 0) + b.mlp_norm.crossing() + gains() + b.crossing();
  }
  void write_partial_gradients(Lane& lane, const Context& c, View to) const override {
    const BlockPlan& b = *plan_;
    std::size_t at = 0;
    const auto next = [&](std::size_t count) { return to.sub(std::exchange(at, at + count), count); };
    b.write_partial_gradients(lane, c.workspace, next(b.crossing()));
    if (!divides_rows()) return;
    if (b.layer.has_norm)
      b.attention_norm.write_partial_gradients(lane, b.norm_sums1.of(c.workspace), next(b.attention_norm.crossing()));
    b.mlp_norm.write_partial_gradients(lane, b.norm_sums2.of(c.workspace), next(b.mlp_norm.crossing()));
    if (gains() > 0) b.attention.sum_gains(lane, c, next(gains()), {});
  }
  void take_gradients(Lane& lane, ConstView from, const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    std::size_t at = 0;
    const auto next = [&](std::size_t count) { return from.sub(std::exchange(at, at + count), count); };
    b.take_gradients(lane, next(b.crossing()), gradients);
    if (!divides_rows()) return;
    if (b.layer.has_norm) b.attention_norm.take_gradients(lane, next(b.attention_norm.crossing()), gradients);
    b.mlp_norm.take_gradients(lane, next(b.mlp_norm.crossing()), gradients);
    if (gains() > 0) b.attention.write_gains(lane, next(gains()), gradients);
  }
  // The number of elements in the gradients of the heads' norms, which are sums over the shards' heads.
  std::size_t gains() const { return plan_->attention.gains(); }
  // The number of elements in the gradient of a product's input, if backward computes it.
  std::size_t summed_rows(std::size_t product) const {
    return passes(step_of(product)) ? plan_->tokens * plan_->hidden : 0;
  }
  View inner_gradient(const Context& c) const {
    return passes(BlockStep::down) ? plan_->wide.of(c.workspace).sub(0, plan_->tokens * plan_->up.out()) : View{};
  }

  static ConstView forward_attention_norm(Lane& lane, const BlockPlan& b, const Context& c, ConstView x,
                                          const ActivationViews& saved) {
    const View normed = b.normed1.of(saved);
    b.attention_norm.forward(lane, c.parameters, x, normed, b.mean1.of(saved), b.rstd1.of(saved),
                             b.no_bias.of(c.workspace));
    return normed;
  }
  void forward_qkv(Lane& lane, const BlockPlan& b, const Context& c, ConstView x, const ActivationViews& saved) const {
    if (divides_rows())
      x = gathered_rows(c, x);
    else if (b.layer.has_norm)
      x = forward_attention_norm(lane, b, c, x, saved);
    b.qkv.forward(lane, c.parameters, x, b.attention.rows(saved), b.scratch.of(c.workspace), {}, adapter_dropout(c, 0),
                  {}, b.kept(c, kAttention));
    b.attention.prepare(lane, c, saved);
  }
  void attend_backward(Lane& lane, const Context& c, ConstView x, ConstView saved) const override {
    BlockUnit::attend_backward(lane, c, x, saved);
    // The next stretch needs these rows again, but its total holds keys instead.
    if (const View kept = plan_->gathered_input.of(c.workspace); keeps_input())
      cast(lane, gathered_input(c, own_input(x, saved)), kept);
  }
  std::size_t crossing_keys() const override { return plan_->attention.crossing_keys(); }
  bool keeps_input() const { return plan_->gathered_input.size > 0 && trains(); }
  ConstView own_input(ConstView x, ConstView saved) const {
    return plan_->layer.has_norm ? plan_->normed1.of(saved) : x;
  }
  ConstView qkv_input(const Context& c, ConstView x, ConstView saved) const {
    return keeps_input() ? plan_->gathered_input.of(c.workspace) : gathered_input(c, own_input(x, saved));
  }

  void backward_qkv(Lane& lane, const Context& c, ConstView x, ConstView saved, View d_normed,
                    const GradientRange& gradients) const {
    const BlockPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), d_rows = b.d_rows(c.workspace);
    b.attention.finish_backward(lane, c, saved, d_rows, gradients, scratch);
    if (b.shards.of > 1 && !divides_rows() && gains() > 0)
      b.attention.sum_gains(lane, c, shared() ? c.partial.sub(summed_rows(kAttention), gains()) : View{}, gradients);
    if (!reaches(BlockStep::heads)) return;
    b.qkv.backward(lane, c.parameters, qkv_input(c, x, saved), d_rows, d_normed, gradients, scratch, {},
                   adapter_dropout(c, 0), b.factor_sums[kAttention].of(c.workspace));
  }
  static void forward_mlp_norm(Lane& lane, const BlockPlan& b, const Context& c, const ActivationViews& saved) {
    b.mlp_norm.forward(lane, c.parameters, b.middle.of(saved), b.normed2.of(saved), b.mean2.of(saved),
                       b.rstd2.of(saved), b.no_bias.of(c.workspace));
  }
  void backward_mlp_norm(Lane& lane, const Context& c, ConstView d_normed, ConstView saved, ConstView dy, View dx,
                         const GradientRange& gradients) const {
    const BlockPlan& b = *plan_;
    b.mlp_norm.backward(lane, c.parameters, d_normed, b.middle.of(saved), b.mean2.of(saved), b.rstd2.of(saved), dy, dx,
                        gradients, b.scratch.of(c.workspace), b.no_bias.of(c.workspace), b.norm_sums2.of(c.workspace));
  }

  device::Gate gate() const { return plan_->spec.mlp == MlpKind::swiglu ? device::Gate::silu : device::Gate::gelu_erf; }
  // Dropout at the outputs of the projection (1) and the MLP (2).
  device::Dropout residual_dropout(const Context& c, std::uint32_t place) const {
    return row_dropout_at(c, place, plan_->spec.residual_dropout);
  }

  Offsets o_{};
};

}  // namespace

void add_pre_norm_blocks(std::vector<std::unique_ptr<Unit>>& units, const PreNormBlockSpec& spec, const RunShape& run) {
  require_whole_shards(run, spec.heads, spec.kv_heads, spec.inner);
  add_blocks<Block, BlockPlan>(
      units, spec, spec.layers.size(), run, [&](std::size_t layer) { return spec.layers[layer]; },
      [&](const RunShape& one, const Offsets& offsets, const PreNormBlockSpec::Layer& kind, const BackwardEnd& end) {
        return std::make_shared<const BlockPlan>(spec, one, offsets, kind, end);
      });
}

}  // namespace strata::models
