#include "models/layers/encoder_block.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "device/ops/dropout.h"
#include "models/layers/attention_part.h"
#include "models/layers/block_unit.h"
#include "models/layers/linear.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

struct NormOffsets {
  std::size_t gain, bias;
};

// Offsets of a block's parameters in its flat buffer; the same for every block.
struct Offsets {
  std::vector<Linear::Tensor> qkv, projection, up, down;
  NormOffsets attention_norm, norm;
};

// The operations of a block, prepared once and shared by all of them.
struct BlockPlan : BlockOperations {
  BlockPlan(const EncoderBlockSpec& s, const RunShape& run, const Offsets& o)
      : BlockOperations{run.tokens(),
                        s.hidden,
                        run.dtype,
                        run.threads,
                        AttentionPart({.heads = s.heads,
                                       .kv_heads = s.heads,
                                       .head_dim = s.hidden / s.heads,
                                       .causal = false,
                                       .dropout = s.attention_dropout},
                                      run),
                        linear(run, s.hidden, o.qkv),
                        linear(run, s.hidden, o.projection),
                        linear(run, s.hidden, o.up, Gelu::erf),
                        linear(run, s.inner, o.down, Gelu::none, /*gelu_before=*/Gelu::erf)},
        shape(s),
        attention_norm(NormKind::layer, norm_of_rows(tokens, s.hidden, s.eps), o.attention_norm.gain,
                       o.attention_norm.bias),
        norm(NormKind::layer, norm_of_rows(tokens, s.hidden, s.eps), o.norm.gain, o.norm.bias) {
    const std::size_t rows = tokens * s.hidden;
    const DType t = run.dtype;
    Slots save;
    heads = save.add(3 * rows, t);
    mixed = save.add(rows, t);
    lse = save.add(tokens * s.heads, DType::fp32);
    attended = save.add(rows, t);
    mean1 = save.add(tokens, DType::fp32);
    rstd1 = save.add(tokens, DType::fp32);
    middle = save.add(rows, t);
    inner = save.add(tokens * s.inner, t);
    active = save.add(tokens * s.inner, t);
    sum = save.add(rows, t);
    mean2 = save.add(tokens, DType::fp32);
    rstd2 = save.add(tokens, DType::fp32);
    bytes.saved = save.bytes();

    Slots work;
    scratch = work.add_bytes(std::max(scratch_bytes(), norm.scratch_bytes()));
    narrow = work.add(rows, t);
    bytes.forward_workspace = work.bytes();
    other = work.add(rows, t);
    wide = work.add(tokens * std::max(s.inner, 3 * s.hidden), t);
    bytes.backward_workspace = work.bytes();
  }
  static Linear linear(const RunShape& run, std::size_t in, std::vector<Linear::Tensor> tensors,
                       Gelu gelu_behind = Gelu::none, Gelu gelu_before = Gelu::none) {
    return Linear({run.tokens(), in, std::move(tensors), true, false, run.dtype, run.device, gelu_behind, gelu_before,
                   run.adapter_dropout()});
  }

  EncoderBlockSpec shape;
  NormPart attention_norm, norm;
  Slot heads, mixed, lse, attended, mean1, rstd1, middle, inner, active, sum, mean2, rstd2;  // saved
  Slot scratch, narrow, other, wide;                                                         // workspace
};

class Block final : public BlockUnit<BlockPlan> {
 public:
  Block(const EncoderBlockSpec& s, std::size_t layer, const RunShape& run) : BlockUnit(layer, run) {
    const std::string p = s.names.layers + std::to_string(layer) + ".";
    const EncoderBlockNames& n = s.names;
    o_.qkv = add_product(p, {n.query, n.key, n.value}, s.hidden, s.hidden, s.deviation);
    end_part();
    o_.projection = add_product(p, {n.projection}, s.hidden, s.hidden, s.deviation);
    o_.attention_norm = add_norm(p + n.attention_norm, s.hidden);
    end_part();
    o_.up = add_product(p, {n.up}, s.inner, s.hidden, s.deviation);
    end_part();
    o_.down = add_product(p, {n.down}, s.hidden, s.inner, s.deviation);
    o_.norm = add_norm(p + n.norm, s.hidden);
    end_part();
  }
  const Offsets& offsets() const { return o_; }

  void forward(Lane& lane, const Context& c, std::size_t which, ConstView x, View y, View saved) const override {
    const BlockPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), narrow = b.narrow.of(c.workspace);
    switch (which) {
      case kAttention:
        b.qkv.forward(lane, c.parameters, x, b.heads.of(saved), scratch, {}, adapter_dropout(c, 0));
        b.attention.forward(lane, c, b.heads.of(saved), b.mixed.of(saved), b.lse.of(saved), dropout_of(c, 0), scratch);
        return;
      case kProjection:
        b.projection.forward(lane, c.parameters, b.mixed.of(saved), narrow, scratch, {}, adapter_dropout(c, 3));
        dropout(lane, dropout_of(c, 1), narrow, x, b.attended.of(saved));
        b.attention_norm.forward(lane, c.parameters, b.attended.of(saved), b.middle.of(saved), b.mean1.of(saved),
                                 b.rstd1.of(saved));
        return;
      case kUp:
        b.up.forward(lane, c.parameters, b.middle.of(saved), b.inner.of(saved), scratch, b.active.of(saved),
                     adapter_dropout(c, 4));
        return;
      case kDown:
        b.down.forward(lane, c.parameters, b.active.of(saved), narrow, scratch, {}, adapter_dropout(c, 5));
        dropout(lane, dropout_of(c, 2), narrow, b.middle.of(saved), b.sum.of(saved));
        // Without y, the norm still writes its statistics.
        b.norm.forward(lane, c.parameters, b.sum.of(saved), y ? y : narrow, b.mean2.of(saved), b.rstd2.of(saved));
        return;
    }
  }

  // After the last norm nothing reads dy, so dx may overwrite it.
  void backward(Lane& lane, const Context& c, std::size_t which, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), narrow = b.narrow.of(c.workspace), other = b.other.of(c.workspace);
    const View d_inner = b.wide.of(c.workspace).sub(0, b.tokens * b.shape.inner);
    const View d_heads = b.wide.of(c.workspace).sub(0, b.tokens * 3 * b.shape.hidden);
    switch (which) {
      case kDown: {
        b.norm.backward(lane, c.parameters, dy, b.sum.of(saved), b.mean2.of(saved), b.rstd2.of(saved), {}, narrow,
                        gradients, scratch);
        const ConstView d_down = through_dropout(lane, dropout_of(c, 2), narrow, other);
        b.down.backward(lane, c.parameters, b.active.of(saved), d_down, d_inner, gradients, scratch, b.inner.of(saved),
                        adapter_dropout(c, 5));
        return;
      }
      case kUp:
        b.up.backward(lane, c.parameters, b.middle.of(saved), d_inner, other, gradients, scratch, {},
                      adapter_dropout(c, 4));
        add_residual(lane, other, narrow, narrow);
        return;
      case kProjection: {
        b.attention_norm.backward(lane, c.parameters, narrow, b.attended.of(saved), b.mean1.of(saved),
                                  b.rstd1.of(saved), {}, dx, gradients, scratch);
        const ConstView d_projection = through_dropout(lane, dropout_of(c, 1), dx, other);
        b.projection.backward(lane, c.parameters, b.mixed.of(saved), d_projection, narrow, gradients, scratch, {},
                              adapter_dropout(c, 3));
        return;
      }
      case kAttention:
        b.attention.backward(lane, c, b.heads.of(saved), b.mixed.of(saved), b.lse.of(saved), narrow, d_heads,
                             dropout_of(c, 0), scratch);
        b.qkv.backward(lane, c.parameters, x, d_heads, narrow, gradients, scratch, {}, adapter_dropout(c, 0));
        add_residual(lane, narrow, dx, dx);
        return;
    }
  }

 private:
  // The parts, in the order of the flat buffer. Backward passes gradients between them in `narrow`, `wide` and dx.
  enum : std::size_t { kAttention, kProjection, kUp, kDown };

  NormOffsets add_norm(const std::string& name, std::size_t width) {
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(width)};
    const std::size_t gain = add_parameter(name + ".weight", shape, false, {1, 0});
    return {gain, add_parameter(name + ".bias", shape, false, {0, 0})};
  }
  // Matrices of the same shape; neighbours are one product.
  std::vector<Linear::Tensor> add_product(const std::string& prefix, std::initializer_list<std::string> names,
                                          std::size_t out, std::size_t in, float deviation) {
    const auto rows = static_cast<std::int64_t>(out), columns = static_cast<std::int64_t>(in);
    std::vector<Linear::Tensor> tensors;
    std::vector<LinearShape> layers;
    for (const std::string& name : names) {
      layers.push_back({prefix + name, out});
      tensors.push_back({out, add_parameter(prefix + name + ".weight", {rows, columns}, true, {0, deviation})});
    }
    for (std::size_t i = 0; i < tensors.size(); ++i)
      tensors[i].bias = add_parameter(layers[i].name + ".bias", {rows}, false, {0, 0});
    const std::vector<LowRank> low_ranks = add_low_rank(in, layers);
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].low_rank = low_ranks[i];
    return tensors;
  }

  // For the attention's probabilities (0), the projection (1) and the output of the block's second half (2).
  device::Dropout dropout_of(const Context& c, std::uint32_t place) const {
    const EncoderBlockSpec& s = plan_->shape;
    return dropout_at(c, place, std::array{s.attention_dropout, s.projection_dropout, s.down_dropout}[place]);
  }

  Offsets o_{};
};

}  // namespace

void add_encoder_blocks(std::vector<std::unique_ptr<Unit>>& units, const EncoderBlockSpec& spec, const RunShape& run) {
  add_blocks<Block, BlockPlan>(units, spec, run);
}

}  // namespace strata::models
