// The Llama family (Touvron et al. 2023) as Hugging Face stores it: RMSNorm before attention and MLP, rotary positions,
// grouped-query attention, SwiGLU, no biases. Mistral adds a sliding window, Qwen2 biases of q, k and v and a window of
// some layers, Qwen3 an RMSNorm of each query and key head.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "device/ops/activation.h"
#include "device/ops/attention/rope.h"
#include "device/ops/dropout.h"
#include "device/ops/elementwise.h"
#include "models/classes.h"
#include "models/families/families.h"
#include "models/families/llama_shape.h"
#include "models/layers/attention_part.h"
#include "models/layers/block_unit.h"
#include "models/layers/embedding.h"
#include "models/layers/heads/class_head.h"
#include "models/layers/heads/head.h"
#include "models/layers/linear.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

// Offsets of a block's parameters in its flat buffer; the same for every block.
struct Offsets {
  std::size_t norm1, q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm, output, output_bias, norm2, gate, up, gate_bias,
      up_bias, down, down_bias;
};

// The operations of a block, prepared once and shared by all that have the same window.
struct BlockPlan : BlockOperations {
  BlockPlan(const LlamaShape& s, const RunShape& run, const Offsets& o, std::size_t window)
      : BlockOperations{run.tokens(),
                        s.hidden,
                        run.dtype,
                        run.threads,
                        AttentionPart({.heads = s.heads,
                                       .kv_heads = s.kv_heads,
                                       .head_dim = s.head_dim,
                                       .window = window,
                                       .dropout = s.attention_dropout},
                                      run),
                        linear(run, s.hidden,
                               {{s.query_width(), o.q, o.q_bias},
                                {s.key_width(), o.k, o.k_bias},
                                {s.key_width(), o.v, o.v_bias}},
                               s.qkv_bias),
                        linear(run, s.query_width(), {{s.hidden, o.output, o.output_bias}}, s.output_bias),
                        linear(run, s.hidden, {{s.inner, o.gate, o.gate_bias}, {s.inner, o.up, o.up_bias}}, s.mlp_bias),
                        linear(run, s.inner, {{s.hidden, o.down, o.down_bias}}, s.mlp_bias)},
        shape(s),
        norm1(NormKind::root_mean_square, norm_of_rows(tokens, s.hidden, s.eps), o.norm1),
        norm2(NormKind::root_mean_square, norm_of_rows(tokens, s.hidden, s.eps), o.norm2),
        q_norm(NormKind::root_mean_square, {tokens, s.head_dim, s.heads, s.qkv_width(), s.qkv_width(), s.eps},
               o.q_norm),
        k_norm(NormKind::root_mean_square, {tokens, s.head_dim, s.kv_heads, s.qkv_width(), s.qkv_width(), s.eps},
               o.k_norm),
        q_rope{tokens, s.heads, s.head_dim, s.qkv_width()},
        k_rope{tokens, s.kv_heads, s.head_dim, s.qkv_width()} {
    const DType t = run.dtype;
    Slots save;
    rstd1 = save.add(tokens, DType::fp32);
    normed1 = save.add(tokens * s.hidden, t);
    heads = save.add(tokens * s.qkv_width(), t);
    if (s.qk_norm) {
      raw = save.add(tokens * s.qkv_width(), t);
      q_rstd = save.add(tokens * s.heads, DType::fp32);
      k_rstd = save.add(tokens * s.kv_heads, DType::fp32);
    }
    mixed = save.add(tokens * s.query_width(), t);
    lse = save.add(tokens * s.heads, DType::fp32);
    middle = save.add(tokens * s.hidden, t);
    rstd2 = save.add(tokens, DType::fp32);
    normed2 = save.add(tokens * s.hidden, t);
    inner = save.add(tokens * 2 * s.inner, t);
    active = save.add(tokens * s.inner, t);
    bytes.saved = save.bytes();
    bytes.cache = attention.cache_bytes();

    Slots work;
    scratch = work.add_bytes(
        std::max({scratch_bytes(), norm1.scratch_bytes(), q_norm.scratch_bytes(), k_norm.scratch_bytes()}));
    narrow = work.add(tokens * std::max(s.hidden, s.query_width()), t);
    bytes.forward_workspace = work.bytes();
    wide = work.add(tokens * std::max(2 * s.inner, s.qkv_width()), t);
    d_active = work.add(tokens * s.inner, t);
    bytes.backward_workspace = work.bytes();
  }
  static Linear linear(const RunShape& run, std::size_t in, std::vector<Linear::Tensor> tensors, bool bias) {
    return Linear({run.tokens(), in, std::move(tensors), bias, false, run.dtype, run.device});
  }

  LlamaShape shape;
  NormPart norm1, norm2, q_norm, k_norm;
  device::RopeShape q_rope, k_rope;
  Slot rstd1, normed1, heads, raw, q_rstd, k_rstd, mixed, lse, middle, rstd2, normed2, inner, active;  // saved
  Slot scratch, narrow, wide, d_active;                                                                // workspace
};

class Block final : public BlockUnit<BlockPlan> {
 public:
  Block(const LlamaShape& s, std::size_t layer) : BlockUnit(layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    const auto d = static_cast<std::int64_t>(s.hidden), f = static_cast<std::int64_t>(s.inner);
    const auto q = static_cast<std::int64_t>(s.query_width()), kv = static_cast<std::int64_t>(s.key_width());
    const auto head = static_cast<std::int64_t>(s.head_dim);
    const Init one{1, 0}, zero{0, 0}, normal{0, s.deviation};
    const auto bias = [&](bool there, const char* name, std::int64_t n) {
      return there ? add_parameter(p + name, {n}, false, zero) : 0;
    };
    o_.norm1 = add_parameter(p + "input_layernorm.weight", {d}, false, one);
    o_.q = add_parameter(p + "self_attn.q_proj.weight", {q, d}, true, normal);
    o_.k = add_parameter(p + "self_attn.k_proj.weight", {kv, d}, true, normal);
    o_.v = add_parameter(p + "self_attn.v_proj.weight", {kv, d}, true, normal);
    o_.q_bias = bias(s.qkv_bias, "self_attn.q_proj.bias", q);
    o_.k_bias = bias(s.qkv_bias, "self_attn.k_proj.bias", kv);
    o_.v_bias = bias(s.qkv_bias, "self_attn.v_proj.bias", kv);
    if (s.qk_norm) {
      o_.q_norm = add_parameter(p + "self_attn.q_norm.weight", {head}, false, one);
      o_.k_norm = add_parameter(p + "self_attn.k_norm.weight", {head}, false, one);
    }
    end_part();
    o_.output = add_parameter(p + "self_attn.o_proj.weight", {d, q}, true, normal);
    o_.output_bias = bias(s.output_bias, "self_attn.o_proj.bias", d);
    o_.norm2 = add_parameter(p + "post_attention_layernorm.weight", {d}, false, one);
    end_part();
    o_.gate = add_parameter(p + "mlp.gate_proj.weight", {f, d}, true, normal);
    o_.up = add_parameter(p + "mlp.up_proj.weight", {f, d}, true, normal);
    o_.gate_bias = bias(s.mlp_bias, "mlp.gate_proj.bias", f);
    o_.up_bias = bias(s.mlp_bias, "mlp.up_proj.bias", f);
    end_part();
    o_.down = add_parameter(p + "mlp.down_proj.weight", {d, f}, true, normal);
    o_.down_bias = bias(s.mlp_bias, "mlp.down_proj.bias", d);
    end_part();
  }
  const Offsets& offsets() const { return o_; }

  std::size_t saving_parts() const override { return kDown; }

  void forward(Lane& lane, const Context& c, std::size_t part, ConstView x, View y, View saved) const override {
    const BlockPlan& b = plan_of(c);
    const LlamaShape& s = b.shape;
    const View scratch = b.scratch.of(c.workspace);
    const View narrow = b.narrow.of(c.workspace).sub(0, b.tokens * s.hidden);
    const View heads = b.heads.of(saved), middle = b.middle.of(saved), inner = b.inner.of(saved);
    const AttentionPart& a = b.attention;
    switch (part) {
      case kAttention:
        b.norm1.forward(lane, c.parameters, x, b.normed1.of(saved), {}, b.rstd1.of(saved));
        if (s.qk_norm) {
          const View raw = b.raw.of(saved);
          b.qkv.forward(lane, c.parameters, b.normed1.of(saved), raw, scratch);
          cast(lane, raw, heads);  // v, and what the norms below overwrite
          b.q_norm.forward(lane, c.parameters, a.queries(raw), a.queries(heads), {}, b.q_rstd.of(saved));
          b.k_norm.forward(lane, c.parameters, a.keys(raw), a.keys(heads), {}, b.k_rstd.of(saved));
        } else {
          b.qkv.forward(lane, c.parameters, b.normed1.of(saved), heads, scratch);
        }
        rotate(lane, b, c, heads, false);
        a.forward(lane, c, heads, b.mixed.of(saved), b.lse.of(saved), dropout_of(c), scratch);
        return;
      case kOutput:
        b.projection.forward(lane, c.parameters, b.mixed.of(saved), narrow, scratch);
        dropout(lane, {}, narrow, x, middle);
        b.norm2.forward(lane, c.parameters, middle, b.normed2.of(saved), {}, b.rstd2.of(saved));
        return;
      case kGateUp:
        b.up.forward(lane, c.parameters, b.normed2.of(saved), inner, scratch);
        swiglu_forward(lane, b.tokens, s.inner, inner, b.active.of(saved));
        return;
      case kDown:
        if (!y) return;
        b.down.forward(lane, c.parameters, b.active.of(saved), narrow, scratch);
        dropout(lane, {}, narrow, middle, y);
        return;
    }
  }

  void backward(Lane& lane, const Context& c, std::size_t part, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const LlamaShape& s = b.shape;
    const View scratch = b.scratch.of(c.workspace);
    const View d_hidden = b.narrow.of(c.workspace).sub(0, b.tokens * s.hidden);
    const View d_mixed = b.narrow.of(c.workspace).sub(0, b.tokens * s.query_width());
    const View d_inner = b.wide.of(c.workspace).sub(0, b.tokens * 2 * s.inner);
    const View d_active = b.d_active.of(c.workspace);
    switch (part) {
      case kDown:
        b.down.backward_parameters(lane, b.active.of(saved), dy, gradients, scratch);
        b.down.backward_input(lane, c.parameters, dy, d_active, scratch);
        swiglu_backward(lane, b.tokens, s.inner, d_active, b.inner.of(saved), d_inner);
        return;
      case kGateUp:
        b.up.backward_parameters(lane, b.normed2.of(saved), d_inner, gradients, scratch);
        b.up.backward_input(lane, c.parameters, d_inner, d_hidden, scratch);
        return;
      case kOutput:
        b.norm2.backward(lane, c.parameters, d_hidden, b.middle.of(saved), {}, b.rstd2.of(saved), dy, dx, gradients,
                         scratch);
        b.projection.backward_parameters(lane, b.mixed.of(saved), dx, gradients, scratch);
        b.projection.backward_input(lane, c.parameters, dx, d_mixed, scratch);
        return;
      case kAttention:
        return backward_attention(lane, c, x, saved, dx, gradients);
    }
  }

 private:
  // The parts, in the order of the flat buffer; backward carries gradients between them in `narrow` and `wide`.
  enum : std::size_t { kAttention, kOutput, kGateUp, kDown };

  void backward_attention(Lane& lane, const Context& c, ConstView x, ConstView saved, View dx,
                          const GradientRange& gradients) const {
    const BlockPlan& b = *plan_;
    const LlamaShape& s = b.shape;
    const View scratch = b.scratch.of(c.workspace);
    const View d_hidden = b.narrow.of(c.workspace).sub(0, b.tokens * s.hidden);
    const View d_mixed = b.narrow.of(c.workspace).sub(0, b.tokens * s.query_width());
    const View d_heads = b.wide.of(c.workspace).sub(0, b.tokens * s.qkv_width());
    const AttentionPart& a = b.attention;
    a.backward(lane, c, b.heads.of(saved), b.mixed.of(saved), b.lse.of(saved), d_mixed, d_heads, dropout_of(c),
               scratch);
    rotate(lane, b, c, d_heads, true);
    if (s.qk_norm) {
      const ConstView raw = b.raw.of(saved);
      b.q_norm.backward(lane, c.parameters, a.queries(d_heads), a.queries(raw), {}, b.q_rstd.of(saved), {},
                        a.queries(d_heads), gradients, scratch);
      b.k_norm.backward(lane, c.parameters, a.keys(d_heads), a.keys(raw), {}, b.k_rstd.of(saved), {}, a.keys(d_heads),
                        gradients, scratch);
    }
    b.qkv.backward_parameters(lane, b.normed1.of(saved), d_heads, gradients, scratch);
    b.qkv.backward_input(lane, c.parameters, d_heads, d_hidden, scratch);
    b.norm1.backward(lane, c.parameters, d_hidden, x, {}, b.rstd1.of(saved), dx, dx, gradients, scratch);
  }

  void rotate(Lane& lane, const BlockPlan& b, const Context& c, View heads, bool inverse) const {
    const LlamaShape& s = b.shape;
    const std::size_t table = s.positions * (s.head_dim / 2);
    const ConstView cos{c.constants, table, DType::fp32};
    const ConstView sin{c.constants + table * sizeof(float), table, DType::fp32};
    rope(lane, b.q_rope, b.attention.queries(heads), c.batch.positions, cos, sin, inverse);
    rope(lane, b.k_rope, b.attention.keys(heads), c.batch.positions, cos, sin, inverse);
  }
  device::Dropout dropout_of(const Context& c) const { return dropout_at(c, 0, plan_->shape.attention_dropout); }

  Offsets o_{};
};

class Llama final : public Model {
 public:
  Llama(const Config& config, const RunShape& run)
      : shape_(read_llama_shape(config, std::max(run.seq, run.cache))), run_(run) {
    if (!run.training) shape_.attention_dropout = 0;
    const LlamaShape& s = shape_;
    family = config.require_text("model_type");
    vocabulary = s.vocabulary;
    hidden = s.hidden;
    max_positions = s.positions;
    heads = s.heads;
    head_dim = s.head_dim;
    ignored_suffixes = {".rotary_emb.inv_freq"};
    optional_prefix = "model.";
    // Positions past the sequence are never looked up.
    shape_.positions = std::min(s.positions, std::max(run.seq, run.cache));
    constants_bytes = s.rotary.bytes(shape_.positions);

    const Init normal{0, s.deviation};
    units.push_back(make_embedding({"model.embed_tokens.weight", "", s.vocabulary, 0, s.hidden, normal, 0}, run));
    add_blocks<Block, BlockPlan>(units, s, s.layers, run, [&](std::size_t layer) { return s.windows[layer]; });
    HeadSpec head{"model.norm.weight", "", "lm_head.weight", s.vocabulary, s.hidden, s.eps, normal};
    if (*run.objective == Objective::causal_lm) {
      if (s.tied) head.tied = share("lm_head.weight", units, 0, 0);
      units.push_back(make_head(head, run));
      return;
    }
    const Classes classes = read_classes(config, *run.objective);
    const bool sequences = *run.objective == Objective::sequence_classification;
    const float dropout = dropout_probability(config, "classifier_dropout", 0.1);
    units.push_back(make_class_head({.hidden = s.hidden,
                                     .classes = classes.names.size(),
                                     .target = classes.target,
                                     .init = normal,
                                     .norm_gain = head.gain_name,
                                     .eps = s.eps,
                                     .scores = "score",
                                     .biased = !sequences,
                                     .dropout_behind = sequences || !run.training ? 0 : dropout},
                                    run));
    drawn_if_missing = {"score.weight", "score.bias"};
    ignored_suffixes.emplace_back("lm_head.weight");
  }

  void fill_constants(std::byte* constants) const override { shape_.rotary.fill(shape_.positions, constants); }

 private:
  LlamaShape shape_;
  RunShape run_;
};

}  // namespace

std::unique_ptr<Model> make_llama(const Config& config, const RunShape& run) {
  require_objective(run, config.require_text("model_type"),
                    {Objective::causal_lm, Objective::sequence_classification, Objective::token_classification});
  return std::make_unique<Llama>(config, run);
}

}  // namespace strata::models
