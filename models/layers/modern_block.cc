#include "models/layers/modern_block.h"

#include <algorithm>
#include <utility>

#include "device/ops/activation.h"
#include "device/ops/attention/rope.h"
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

struct Offsets {
  std::size_t attention_norm, qkv, projection, mlp_norm, up, down;
};

// What blocks of one kind share: that see the whole document or not, that begin with a norm or not.
struct BlockPlan : BlockOperations {
  BlockPlan(const ModernBlockSpec& s, const RunShape& run, const Offsets& o, std::pair<bool, bool> kind)
      : BlockOperations{run.tokens(),
                        s.hidden,
                        run.dtype,
                        run.threads,
                        AttentionPart({.heads = s.heads,
                                       .kv_heads = s.heads,
                                       .head_dim = s.hidden / s.heads,
                                       .window = kind.first ? 0 : s.window,
                                       .causal = false},
                                      run),
                        linear(run, s.hidden, 3 * s.hidden, o.qkv),
                        linear(run, s.hidden, s.hidden, o.projection),
                        linear(run, s.hidden, 2 * s.inner, o.up),
                        linear(run, s.inner, s.hidden, o.down)},
        inner_width(s.inner),
        has_norm(kind.second),
        angles(kind.first ? s.global_angles : s.local_angles),
        positions(s.positions),
        attention_norm(NormKind::layer_without_bias, norm_of_rows(tokens, s.hidden, s.eps), o.attention_norm),
        mlp_norm(NormKind::layer_without_bias, norm_of_rows(tokens, s.hidden, s.eps), o.mlp_norm),
        rope{tokens, s.heads, s.hidden / s.heads, 3 * s.hidden} {
    const std::size_t rows = tokens * s.hidden;
    const DType t = run.dtype;
    Slots save;
    mean1 = save.add(has_norm ? tokens : 0, DType::fp32);
    rstd1 = save.add(has_norm ? tokens : 0, DType::fp32);
    normed1 = save.add(has_norm ? rows : 0, t);
    heads = save.add(3 * rows, t);
    mixed = save.add(rows, t);
    lse = save.add(tokens * s.heads, DType::fp32);
    middle = save.add(rows, t);
    mean2 = save.add(tokens, DType::fp32);
    rstd2 = save.add(tokens, DType::fp32);
    normed2 = save.add(rows, t);
    inner = save.add(tokens * 2 * s.inner, t);
    active = save.add(tokens * s.inner, t);
    bytes.saved = save.bytes();

    Slots work;
    scratch = work.add_bytes(std::max(scratch_bytes(), mlp_norm.scratch_bytes()));
    narrow = work.add(rows, t);
    no_bias = work.add(s.hidden, t);
    bytes.forward_workspace = work.bytes();
    wide = work.add(tokens * std::max(2 * s.inner, 3 * s.hidden), t);
    d_active = work.add(tokens * s.inner, t);
    bytes.backward_workspace = work.bytes();
  }
  static Linear linear(const RunShape& run, std::size_t in, std::size_t out, std::size_t weight) {
    return Linear({run.tokens(), in, {{out, weight}}, false, false, run.dtype, run.device});
  }

  std::size_t inner_width;
  bool has_norm;
  std::size_t angles, positions;
  NormPart attention_norm, mlp_norm;
  device::RopeShape rope;
  Slot mean1, rstd1, normed1, heads, mixed, lse, middle, mean2, rstd2, normed2, inner, active;  // saved
  Slot scratch, narrow, no_bias, wide, d_active;                                                // workspace
};

class Block final : public BlockUnit<BlockPlan> {
 public:
  Block(const ModernBlockSpec& s, std::size_t layer) : BlockUnit(layer) {
    const std::string p = s.layers + std::to_string(layer) + ".";
    const auto d = static_cast<std::int64_t>(s.hidden), f = static_cast<std::int64_t>(s.inner);
    const auto matrix = [&](const char* name, std::int64_t out, std::int64_t in) {
      return add_parameter(p + name, {out, in}, true, {0, s.deviation});
    };
    const auto gain = [&](const char* name) { return add_parameter(p + name, {d}, false, {1, 0}); };
    if (layer > 0) o_.attention_norm = gain("attn_norm.weight");
    o_.qkv = matrix("attn.Wqkv.weight", 3 * d, d);
    end_part();
    o_.projection = matrix("attn.Wo.weight", d, d);
    end_part();
    o_.mlp_norm = gain("mlp_norm.weight");
    o_.up = matrix("mlp.Wi.weight", 2 * f, d);
    end_part();
    o_.down = matrix("mlp.Wo.weight", d, f);
    end_part();
  }
  const Offsets& offsets() const { return o_; }

  void forward(Lane& lane, const Context& c, std::size_t which, ConstView x, View y, View saved) const override {
    const BlockPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), narrow = b.narrow.of(c.workspace);
    const View no_bias = b.no_bias.of(c.workspace);
    switch (which) {
      case kAttention: {
        if (b.has_norm)
          b.attention_norm.forward(lane, c.parameters, x, b.normed1.of(saved), b.mean1.of(saved), b.rstd1.of(saved),
                                   no_bias);
        const View heads = b.heads.of(saved);
        b.qkv.forward(lane, c.parameters, b.has_norm ? ConstView(b.normed1.of(saved)) : x, heads, scratch);
        rotate(lane, c, heads, false);
        b.attention.forward(lane, c, heads, b.mixed.of(saved), b.lse.of(saved), {}, scratch);
        return;
      }
      case kProjection:
        b.projection.forward(lane, c.parameters, b.mixed.of(saved), narrow, scratch);
        dropout(lane, {}, narrow, x, b.middle.of(saved));
        return;
      case kUp:
        b.mlp_norm.forward(lane, c.parameters, b.middle.of(saved), b.normed2.of(saved), b.mean2.of(saved),
                           b.rstd2.of(saved), no_bias);
        b.up.forward(lane, c.parameters, b.normed2.of(saved), b.inner.of(saved), scratch);
        geglu_forward(lane, b.tokens, b.inner_width, b.inner.of(saved), b.active.of(saved));
        return;
      case kDown:
        if (!y) return;
        b.down.forward(lane, c.parameters, b.active.of(saved), narrow, scratch);
        dropout(lane, {}, narrow, b.middle.of(saved), y);
        return;
    }
  }
  std::size_t saving_parts() const override { return kDown; }

  void backward(Lane& lane, const Context& c, std::size_t which, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), narrow = b.narrow.of(c.workspace);
    const View d_active = b.d_active.of(c.workspace), no_bias = b.no_bias.of(c.workspace);
    const View d_inner = b.wide.of(c.workspace).sub(0, b.tokens * 2 * b.inner_width);
    const View d_heads = b.wide.of(c.workspace).sub(0, b.tokens * 3 * b.hidden);
    switch (which) {
      case kDown:
        b.down.backward_parameters(lane, b.active.of(saved), dy, gradients, scratch);
        b.down.backward_input(lane, c.parameters, dy, d_active, scratch);
        return;
      case kUp:
        geglu_backward(lane, b.tokens, b.inner_width, d_active, b.inner.of(saved), d_inner);
        b.up.backward_parameters(lane, b.normed2.of(saved), d_inner, gradients, scratch);
        b.up.backward_input(lane, c.parameters, d_inner, narrow, scratch);
        b.mlp_norm.backward(lane, c.parameters, narrow, b.middle.of(saved), b.mean2.of(saved), b.rstd2.of(saved), dy,
                            dx, gradients, scratch, no_bias);
        return;
      case kProjection:
        b.projection.backward_parameters(lane, b.mixed.of(saved), dx, gradients, scratch);
        b.projection.backward_input(lane, c.parameters, dx, narrow, scratch);
        return;
      case kAttention:
        b.attention.backward(lane, c, b.heads.of(saved), b.mixed.of(saved), b.lse.of(saved), narrow, d_heads, {},
                             scratch);
        rotate(lane, c, d_heads, true);
        b.qkv.backward_parameters(lane, b.has_norm ? b.normed1.of(saved) : x, d_heads, gradients, scratch);
        b.qkv.backward_input(lane, c.parameters, d_heads, narrow, scratch);
        if (b.has_norm)
          b.attention_norm.backward(lane, c.parameters, narrow, x, b.mean1.of(saved), b.rstd1.of(saved), dx, dx,
                                    gradients, scratch, no_bias);
        else
          dropout(lane, {}, narrow, dx, dx);
        return;
    }
  }

 private:
  // The parts, in the order of the flat buffer; backward carries gradients between them in `d_active`, `narrow` and dx.
  enum : std::size_t { kAttention, kProjection, kUp, kDown };

  // Queries and keys by their rows' positions.
  void rotate(Lane& lane, const Context& c, View heads, bool inverse) const {
    const BlockPlan& b = *plan_;
    const std::size_t table = b.positions * b.rope.head_dim / 2;
    const std::byte* const angles = c.constants + b.angles;
    const ConstView cos{angles, table, DType::fp32};
    const ConstView sin{angles + table * sizeof(float), table, DType::fp32};
    for (const View& which : {b.attention.queries(heads), b.attention.keys(heads)})
      rope(lane, b.rope, which, c.batch.positions, cos, sin, inverse);
  }

  Offsets o_{};
};

}  // namespace

void add_modern_blocks(std::vector<std::unique_ptr<Unit>>& units, const ModernBlockSpec& spec, const RunShape& run) {
  // Whether it sees the whole document, and whether it begins with a norm.
  add_blocks<Block, BlockPlan>(units, spec, spec.layers_count, run, [&](std::size_t layer) {
    return std::pair{static_cast<bool>(spec.global[layer]), layer > 0};
  });
}

}  // namespace strata::models
