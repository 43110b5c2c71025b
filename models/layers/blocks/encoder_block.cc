#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "device/ops/elementwise.h"
#include "models/layers/blocks/attention_part.h"
#include "models/layers/blocks/block_unit.h"
#include "models/layers/blocks/blocks.h"
#include "models/layers/linear/split_linear.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

// Offsets of a block's parameters in its flat buffer; the same for every block.
struct EncoderOffsets {
  SplitLinear::Offsets qkv, projection, up, down;
  NormOffsets attention_norm, norm;
};

// The operations of a block, prepared once and shared by all of them.
struct EncoderPlan : BlockOperations {
  EncoderPlan(const EncoderBlockSpec& s, const RunShape& run, const EncoderOffsets& o, const BackwardEnd& backward_end)
      : BlockOperations{run.tokens(),
                        s.hidden,
                        run.own_rows().size(),
                        run.dtype,
                        run.threads,
                        backward_end,
                        {{.heads = s.heads,
                          .kv_heads = s.heads,
                          .head_dim = s.hidden / s.heads,
                          .causal = false,
                          .dropout = s.attention_dropout},
                         run},
                        linear(run, CutSide::outputs, s.hidden, o.qkv, true, false,
                               backward_end.passes(BlockStep::heads)),
                        linear(run, CutSide::inputs, s.hidden, o.projection, true, false,
                               backward_end.passes(BlockStep::projection)),
                        linear(run, CutSide::outputs, s.hidden, o.up, true, false, backward_end.passes(BlockStep::up),
                               Gelu::erf),
                        linear(run, CutSide::inputs, s.inner, o.down, true, false, backward_end.passes(BlockStep::down),
                               Gelu::none, /*gelu_before=*/Gelu::erf)},
        shape(s),
        shards(run.shards),
        attention_norm(NormKind::layer, norm_of_rows(rows, s.hidden, s.eps), o.attention_norm.gain,
                       o.attention_norm.bias, run.row_blocks()),
        norm(NormKind::layer, norm_of_rows(rows, s.hidden, s.eps), o.norm.gain, o.norm.bias, run.row_blocks()) {
    const std::size_t elements = rows * s.hidden, inner_width = shards.share(s.inner);
    const DType t = run.dtype;
    const bool attends = backward_end.passes(BlockStep::projection), activates = backward_end.passes(BlockStep::down);
    Placed place;
    attention.place_saved(place.needed(attends), place.needed(backward_end.reaches(BlockStep::projection)));
    Slots& with_attention_norm = place.needed(backward_end.reaches(BlockStep::middle_norm));
    attended = with_attention_norm.add(elements, t);
    mean1 = with_attention_norm.add(rows, DType::fp32);
    rstd1 = with_attention_norm.add(rows, DType::fp32);
    middle = place.needed(backward_end.reaches(BlockStep::up)).add(elements, t);
    inner = place.needed(activates).add(tokens * inner_width, t);
    active = place.needed(backward_end.reaches(BlockStep::down)).add(tokens * inner_width, t);
    Slots& with_norm = place.needed(true);
    sum = with_norm.add(elements, t);
    mean2 = with_norm.add(rows, DType::fp32);
    rstd2 = with_norm.add(rows, DType::fp32);

    Slots work;
    place_squares(shards, place.needed(true), work);
    scratch = work.add_bytes(std::max(scratch_bytes(), norm.scratch_bytes()));
    narrow = work.add(std::max(elements, attends ? attention.mixed_size() : 0), t);
    end_forward_workspace(work, place);
    other = work.add(elements, t);
    wide = work.add(std::max(activates ? tokens * inner_width : 0, attends ? attention.rows_size() : 0), t);
    norm_sums1 = work.add(backward_end.reaches(BlockStep::middle_norm) ? attention_norm.sums() : 0, DType::fp32);
    norm_sums2 = work.add(norm.sums(), DType::fp32);
    place_sums(work);
    bytes.backward_workspace = work.bytes();
  }

  EncoderBlockSpec shape;
  ShardRange shards;
  NormPart attention_norm, norm;
  Slot attended, mean1, rstd1, middle, inner, active, sum, mean2, rstd2;  // saved
  Slot other, norm_sums1, norm_sums2;                                     // workspace
};

class EncoderBlock final : public BlockUnit<EncoderPlan> {
 public:
  EncoderBlock(const EncoderBlockSpec& s, std::size_t layer, const RunShape& run) : BlockUnit(layer, run) {
    const std::string p = s.names.layers + std::to_string(layer) + ".";
    const EncoderBlockNames& n = s.names;
    const Init init{0, s.deviation};
    const auto add = [&](SplitLinear::Offsets& places, CutSide side, std::size_t in,
                         std::vector<JoinedLayers::Matrix> matrices) {
      add_layers(places, p, {std::move(matrices), true, init}, in, side, false);
    };
    add(o_.qkv, CutSide::outputs, s.hidden, {{n.query, s.hidden}, {n.key, s.hidden}, {n.value, s.hidden}});
    end_product();
    add(o_.projection, CutSide::inputs, s.hidden, {{n.projection, s.hidden}});
    o_.attention_norm = add_norm(BlockStep::middle_norm, NormKind::layer, p + n.attention_norm, s.hidden);
    end_product();
    add(o_.up, CutSide::outputs, s.hidden, {{n.up, s.inner}});
    end_product();
    add(o_.down, CutSide::inputs, s.inner, {{n.down, s.hidden}});
    o_.norm = add_norm(BlockStep::output_norm, NormKind::layer, p + n.norm, s.hidden);
    end_block();
  }
  const EncoderOffsets& offsets() const { return o_; }
  bool input_in_backward() const override { return reaches(BlockStep::heads); }

 private:
  void forward_of(Lane& lane, const Context& c, std::size_t product, ConstView x, View,
                  const ActivationViews& saved) const override {
    const EncoderPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), narrow = b.rows_of(b.narrow, c.workspace);
    switch (product) {
      case kAttention:
        return b.qkv.forward(lane, c.parameters, gathered_rows(c, x), b.attention.rows(saved), scratch, {},
                             adapter_dropout(c, 0));
      case kProjection:
        return b.projection.forward(lane, c.parameters, b.attention.mixed(saved), sum_in(c, narrow), scratch, {},
                                    adapter_dropout(c, 3), b.projection_squares(saved));
      case kUp:
        b.up.forward(lane, c.parameters, gathered_rows(c, b.middle.of(saved)), b.inner.of(saved), scratch,
                     b.active.of(saved), adapter_dropout(c, 4));
        return;
      case kDown:
        return b.down.forward(lane, c.parameters, b.active.of(saved), sum_in(c, narrow), scratch, {},
                              adapter_dropout(c, 5), b.down_squares(saved));
    }
  }
  void after_forward(Lane& lane, const Context& c, std::size_t product, ConstView x, View y,
                     const ActivationViews& saved) const override {
    const EncoderPlan& b = *plan_;
    const View narrow = b.rows_of(b.narrow, c.workspace);
    if (product == kProjection) {
      dropout(lane, dropout_of(c, 1), sum_of(c, narrow), x, b.attended.of(saved));
      return b.attention_norm.forward(lane, c.parameters, b.attended.of(saved), b.middle.of(saved), b.mean1.of(saved),
                                      b.rstd1.of(saved));
    }
    dropout(lane, dropout_of(c, 2), sum_of(c, narrow), b.middle.of(saved), b.sum.of(saved));
    // Without y, the norm still writes its statistics.
    b.norm.forward(lane, c.parameters, b.sum.of(saved), y ? y : narrow, b.mean2.of(saved), b.rstd2.of(saved));
  }

  void leave_input(Lane& lane, const Context&, std::size_t product, ConstView x, const ActivationViews& saved,
                   View to) const override {
    cast(lane, product == kAttention ? x : plan_->middle.of(saved), to);
  }

  // Between products, `narrow`, `wide` and dx hold gradients. After the last norm nothing reads dy, so dx may overwrite
  // it.
  void backward_of(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved, ConstView dy,
                   View dx, const GradientRange& gradients) const override {
    const EncoderPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), other = b.other.of(c.workspace);
    const View narrow = b.rows_of(b.narrow, c.workspace);
    switch (product) {
      case kDown: {
        if (!divides_rows()) backward_norm(lane, c, saved, dy, gradients);
        if (!reaches(BlockStep::down)) return;
        const bool activates = passes(BlockStep::down);
        const ConstView d_down =
            divides_rows() ? gathered_rows(c, dy) : through_dropout(lane, dropout_of(c, 2), narrow, other);
        b.down.backward(lane, c.parameters, b.active.of(saved), d_down, inner_gradient(c), gradients, scratch,
                        activates ? b.inner.of(saved) : ConstView{}, adapter_dropout(c, 5),
                        b.factor_sums[kDown].of(c.workspace), b.down_squares(saved));
        return;
      }
      case kUp:
        return b.up.backward(lane, c.parameters, gathered_input(c, b.middle.of(saved)), inner_gradient(c),
                             sum_in(c, other), gradients, scratch, {}, adapter_dropout(c, 4),
                             b.factor_sums[kUp].of(c.workspace));
      case kProjection: {
        if (!divides_rows()) backward_attention_norm(lane, c, saved, dx, gradients);
        if (!reaches(BlockStep::projection)) return;
        const View d_mixed = passes(BlockStep::projection) ? b.d_mixed(c.workspace) : View{};
        const ConstView d_projection =
            divides_rows() ? gathered_rows(c, dx) : through_dropout(lane, dropout_of(c, 1), dx, other);
        b.projection.backward(lane, c.parameters, b.attention.mixed(saved), d_projection, d_mixed, gradients, scratch,
                              {}, adapter_dropout(c, 3), b.factor_sums[kProjection].of(c.workspace),
                              b.projection_squares(saved));
        return;
      }
      case kAttention:
        return b.qkv.backward(lane, c.parameters, gathered_input(c, x), b.d_rows(c.workspace), sum_in(c, narrow),
                              gradients, scratch, {}, adapter_dropout(c, 0), b.factor_sums[kAttention].of(c.workspace));
    }
  }
  void write_partial_gradient(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved,
                              ConstView dy, View dx, View to, View input) const override {
    const EncoderPlan& b = *plan_;
    const bool of_mlp = product == kDown;
    if (of_mlp)
      backward_norm(lane, c, saved, dy, {});
    else
      backward_attention_norm(lane, c, saved, dx, {});
    if (!to) return;
    // A copy if nothing is dropped.
    dropout(lane, dropout_of(c, of_mlp ? 2 : 1), of_mlp ? b.rows_of(b.narrow, c.workspace) : dx, {}, to);
    if (input) cast(lane, of_mlp ? b.middle.of(saved) : x, input);
  }
  std::size_t crossing_gradients() const override {
    return plan_->attention_norm.crossing() + plan_->norm.crossing() + plan_->crossing();
  }
  void write_partial_gradients(Lane& lane, const Context& c, View to) const override {
    const EncoderPlan& b = *plan_;
    std::size_t at = 0;
    const auto next = [&](std::size_t count) { return to.sub(std::exchange(at, at + count), count); };
    b.attention_norm.write_partial_gradients(lane, b.norm_sums1.of(c.workspace), next(b.attention_norm.crossing()));
    b.norm.write_partial_gradients(lane, b.norm_sums2.of(c.workspace), next(b.norm.crossing()));
    b.write_partial_gradients(lane, c.workspace, next(b.crossing()));
  }
  void take_gradients(Lane& lane, ConstView from, const GradientRange& gradients) const override {
    const EncoderPlan& b = *plan_;
    std::size_t at = 0;
    const auto next = [&](std::size_t count) { return from.sub(std::exchange(at, at + count), count); };
    b.attention_norm.take_gradients(lane, next(b.attention_norm.crossing()), gradients);
    b.norm.take_gradients(lane, next(b.norm.crossing()), gradients);
    b.take_gradients(lane, next(b.crossing()), gradients);
  }
  // Reads dy, and writes to `narrow`.
  void backward_norm(Lane& lane, const Context& c, ConstView saved, ConstView dy,
                     const GradientRange& gradients) const {
    const EncoderPlan& b = *plan_;
    b.norm.backward(lane, c.parameters, dy, b.sum.of(saved), b.mean2.of(saved), b.rstd2.of(saved), {},
                    b.rows_of(b.narrow, c.workspace), gradients, b.scratch.of(c.workspace), {},
                    b.norm_sums2.of(c.workspace));
  }
  // Reads `narrow`, and writes to dx.
  void backward_attention_norm(Lane& lane, const Context& c, ConstView saved, View dx,
                               const GradientRange& gradients) const {
    const EncoderPlan& b = *plan_;
    b.attention_norm.backward(lane, c.parameters, b.rows_of(b.narrow, c.workspace), b.attended.of(saved),
                              b.mean1.of(saved), b.rstd1.of(saved), {}, dx, gradients, b.scratch.of(c.workspace), {},
                              b.norm_sums1.of(c.workspace));
  }
  void after_backward(Lane& lane, const Context& c, std::size_t product, ConstView, ConstView, ConstView, View dx,
                      const GradientRange&) const override {
    const EncoderPlan& b = *plan_;
    const View narrow = b.rows_of(b.narrow, c.workspace);
    if (!passes(step_of(product))) return;
    if (product == kUp)
      add_residual(lane, sum_of(c, b.other.of(c.workspace)), narrow, narrow);
    else
      add_residual(lane, sum_of(c, narrow), dx, dx);
  }
  void backward_parameters_of(Lane& lane, const Context& c, std::size_t product, ConstView x, ConstView saved,
                              const GradientRange& gradients) const override {
    const EncoderPlan& b = *plan_;
    const SplitLinear& layer = product == kUp ? b.up : b.qkv;
    const ConstView dy = b.wide.of(c.workspace).sub(0, b.tokens * layer.out());
    layer.backward_parameters(lane, gathered_input(c, product == kUp ? b.middle.of(saved) : x), dy, gradients,
                              b.scratch.of(c.workspace));
  }
  Seam seam_after(Pass pass, std::size_t product) const override {
    const EncoderPlan& b = *plan_;
    if (pass == Pass::backward) return {passes(step_of(product)) ? b.tokens * b.hidden : 0};
    return {b.tokens * b.hidden, product == kProjection ? b.projection.bias() : b.down.bias()};
  }

  View inner_gradient(const Context& c) const {
    const EncoderPlan& b = *plan_;
    return passes(BlockStep::down) ? b.wide.of(c.workspace).sub(0, b.tokens * b.shards.share(b.shape.inner)) : View{};
  }

  // Dropout at the projection (1) and at the output of the block's second half (2).
  device::Dropout dropout_of(const Context& c, std::uint32_t place) const {
    const EncoderBlockSpec& s = plan_->shape;
    return row_dropout_at(c, place, place == 1 ? s.projection_dropout : s.down_dropout);
  }

  EncoderOffsets o_{};
};

}  // namespace

void add_encoder_blocks(std::vector<std::unique_ptr<Unit>>& units, const EncoderBlockSpec& spec, const RunShape& run) {
  require_whole_shards(run, spec.heads, spec.heads, spec.inner);
  add_blocks<EncoderBlock, EncoderPlan>(
      units, spec, spec.layers, run, [](std::size_t) { return 0; },
      [&](const RunShape& one, const EncoderOffsets& offsets, int, const BackwardEnd& end) {
        return std::make_shared<const EncoderPlan>(spec, one, offsets, end);
      });
}

}  // namespace strata::models
