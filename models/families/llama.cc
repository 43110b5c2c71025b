// The Llama family (Touvron et al. 2023) as Hugging Face stores it: RMSNorm before attention and MLP, rotary positions,
// grouped-query attention, SwiGLU, no biases. Mistral adds a sliding window, Qwen2 biases of q, k and v, Qwen3 an
// RMSNorm of each query and key head.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "device/ops/activation.h"
#include "device/ops/attention/attention.h"
#include "device/ops/attention/cached_attention.h"
#include "device/ops/attention/rope.h"
#include "device/ops/elementwise.h"
#include "device/ops/norm.h"
#include "models/classes.h"
#include "models/families/families.h"
#include "models/families/llama_shape.h"
#include "models/layers/block_unit.h"
#include "models/layers/embedding.h"
#include "models/layers/heads/class_head.h"
#include "models/layers/heads/head.h"
#include "models/layers/linear.h"
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

// The operations of a block, prepared once and shared by all of them.
struct BlockPlan {
  BlockPlan(const LlamaShape& s, const RunShape& run, const Offsets& o)
      : shape(s),
        offsets(o),
        tokens(run.tokens()),
        dtype(run.dtype),
        norm{tokens, s.hidden, 1, s.hidden, s.hidden, s.eps},
        q_norm{tokens, s.head_dim, s.heads, s.qkv_width(), s.qkv_width(), s.eps},
        k_norm{tokens, s.head_dim, s.kv_heads, s.qkv_width(), s.qkv_width(), s.eps},
        q_rope{tokens, s.heads, s.head_dim, s.qkv_width()},
        k_rope{tokens, s.kv_heads, s.head_dim, s.qkv_width()},
        attention{run.batch,     run.seq,       s.heads,
                  s.kv_heads,    s.head_dim,    s.qkv_width(),
                  s.qkv_width(), s.qkv_width(), 1.0f / std::sqrt(static_cast<float>(s.head_dim)),
                  s.window,      true,          run.packed},
        qkv({tokens,
             s.hidden,
             {{s.query_width(), o.q, o.q_bias}, {s.key_width(), o.k, o.k_bias}, {s.key_width(), o.v, o.v_bias}},
             s.qkv_bias,
             false,
             run.dtype,
             run.device}),
        output({tokens,
                s.query_width(),
                {{s.hidden, o.output, o.output_bias}},
                s.output_bias,
                false,
                run.dtype,
                run.device}),
        gate_up({tokens,
                 s.hidden,
                 {{s.inner, o.gate, o.gate_bias}, {s.inner, o.up, o.up_bias}},
                 s.mlp_bias,
                 false,
                 run.dtype,
                 run.device}),
        down({tokens, s.inner, {{s.hidden, o.down, o.down_bias}}, s.mlp_bias, false, run.dtype, run.device}) {
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

    std::size_t scratch_bytes =
        std::max({device::attention_workspace(run.device, attention, t, s.attention_dropout > 0, run.threads),
                  device::norm_backward_workspace(norm), device::norm_backward_workspace(q_norm),
                  device::norm_backward_workspace(k_norm)});
    if (run.cache > 0) {
      cached = {s.heads,       s.kv_heads,      s.head_dim, s.qkv_width(), s.qkv_width(),
                s.qkv_width(), attention.scale, s.window,   run.cache};
      bytes.cache = device::cache_elements(cached) * size_of(t);
      scratch_bytes = std::max(scratch_bytes, device::cached_attention_workspace(cached, run.threads));
      if (tokens > 1) {
        RunShape single = run;
        single.seq = 1;
        one_row = std::make_unique<const BlockPlan>(s, single, o);
      }
    }
    for (const Linear* linear : linears()) scratch_bytes = std::max(scratch_bytes, linear->scratch_bytes(run.threads));
    Slots work;
    scratch = work.add_bytes(scratch_bytes);
    narrow = work.add(tokens * std::max(s.hidden, s.query_width()), t);
    bytes.forward_workspace = work.bytes();
    wide = work.add(tokens * std::max(2 * s.inner, s.qkv_width()), t);
    d_active = work.add(tokens * s.inner, t);
    bytes.backward_workspace = work.bytes();
  }
  // By part.
  std::array<const Linear*, 4> linears() const { return {&qkv, &output, &gate_up, &down}; }

  LlamaShape shape;
  Offsets offsets;
  std::size_t tokens;
  DType dtype;
  device::NormShape norm, q_norm, k_norm;
  device::RopeShape q_rope, k_rope;
  device::AttentionShape attention;
  device::CachedAttentionShape cached{};
  Linear qkv, output, gate_up, down;
  Slot rstd1, normed1, heads, raw, q_rstd, k_rstd, mixed, lse, middle, rstd2, normed2, inner, active;  // saved
  Slot scratch, narrow, wide, d_active;                                                                // workspace
  UnitBytes bytes;
  std::unique_ptr<const BlockPlan> one_row;  // the same for one row, where the run generates
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
    const BlockPlan& b = c.one_row() && plan_->one_row ? *plan_->one_row : *plan_;
    const LlamaShape& s = b.shape;
    const View scratch = b.scratch.of(c.workspace);
    const View narrow = b.narrow.of(c.workspace).sub(0, b.tokens * s.hidden);
    const View heads = b.heads.of(saved), middle = b.middle.of(saved), inner = b.inner.of(saved);
    switch (part) {
      case kAttention:
        rmsnorm_forward(lane, b.norm, x, gain(c, o_.norm1), b.normed1.of(saved), b.rstd1.of(saved));
        if (s.qk_norm) {
          const View raw = b.raw.of(saved);
          b.qkv.forward(lane, c.parameters, b.normed1.of(saved), raw, scratch);
          cast(lane, raw, heads);  // v, and what the norms below overwrite
          rmsnorm_forward(lane, b.q_norm, q_of(raw), c.parameters.sub(o_.q_norm, s.head_dim), q_of(heads),
                          b.q_rstd.of(saved));
          rmsnorm_forward(lane, b.k_norm, k_of(raw), c.parameters.sub(o_.k_norm, s.head_dim), k_of(heads),
                          b.k_rstd.of(saved));
        } else {
          b.qkv.forward(lane, c.parameters, b.normed1.of(saved), heads, scratch);
        }
        rotate(lane, b, c, heads, false);
        if (c.cache.rows > 0)
          cached_attention(lane, b.cached, c.cache.first, c.cache.rows, q_of(heads), k_of(heads), v_of(heads),
                           c.cache.values, b.mixed.of(saved), scratch);
        else
          attention_forward(lane, b.attention, c.batch.documents, q_of(heads), k_of(heads), v_of(heads),
                            b.mixed.of(saved), b.lse.of(saved), dropout_of(c), scratch);
        return;
      case kOutput:
        b.output.forward(lane, c.parameters, b.mixed.of(saved), narrow, scratch);
        dropout(lane, {}, narrow, x, middle);
        rmsnorm_forward(lane, b.norm, middle, gain(c, o_.norm2), b.normed2.of(saved), b.rstd2.of(saved));
        return;
      case kGateUp:
        b.gate_up.forward(lane, c.parameters, b.normed2.of(saved), inner, scratch);
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
        b.gate_up.backward_parameters(lane, b.normed2.of(saved), d_inner, gradients, scratch);
        b.gate_up.backward_input(lane, c.parameters, d_inner, d_hidden, scratch);
        return;
      case kOutput:
        rmsnorm_backward(lane, b.norm, d_hidden, b.middle.of(saved), gain(c, o_.norm2), b.rstd2.of(saved), dy, dx,
                         gradients.sub(o_.norm2, s.hidden), scratch);
        b.output.backward_parameters(lane, b.mixed.of(saved), dx, gradients, scratch);
        b.output.backward_input(lane, c.parameters, dx, d_mixed, scratch);
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
    const ConstView heads = b.heads.of(saved);
    attention_backward(lane, b.attention, c.batch.documents, q_of(heads), k_of(heads), v_of(heads), b.mixed.of(saved),
                       b.lse.of(saved), d_mixed, q_of(d_heads), k_of(d_heads), v_of(d_heads), dropout_of(c), scratch);
    rotate(lane, b, c, d_heads, true);
    if (s.qk_norm) {
      const ConstView raw = b.raw.of(saved);
      rmsnorm_backward(lane, b.q_norm, q_of(d_heads), q_of(raw), c.parameters.sub(o_.q_norm, s.head_dim),
                       b.q_rstd.of(saved), {}, q_of(d_heads), gradients.sub(o_.q_norm, s.head_dim), scratch);
      rmsnorm_backward(lane, b.k_norm, k_of(d_heads), k_of(raw), c.parameters.sub(o_.k_norm, s.head_dim),
                       b.k_rstd.of(saved), {}, k_of(d_heads), gradients.sub(o_.k_norm, s.head_dim), scratch);
    }
    b.qkv.backward_parameters(lane, b.normed1.of(saved), d_heads, gradients, scratch);
    b.qkv.backward_input(lane, c.parameters, d_heads, d_hidden, scratch);
    rmsnorm_backward(lane, b.norm, d_hidden, x, gain(c, o_.norm1), b.rstd1.of(saved), dx, dx,
                     gradients.sub(o_.norm1, s.hidden), scratch);
  }

  ConstView gain(const Context& c, std::size_t offset) const { return c.parameters.sub(offset, plan_->shape.hidden); }
  template <typename V>
  V q_of(V heads) const {
    return heads;
  }
  template <typename V>
  V k_of(V heads) const {
    const std::size_t at = plan_->shape.query_width();
    return heads.sub(at, heads.size - at);
  }
  template <typename V>
  V v_of(V heads) const {
    const std::size_t at = plan_->shape.query_width() + plan_->shape.key_width();
    return heads.sub(at, heads.size - at);
  }
  void rotate(Lane& lane, const BlockPlan& b, const Context& c, View heads, bool inverse) const {
    const LlamaShape& s = b.shape;
    const std::size_t table = s.positions * (s.head_dim / 2);
    auto* constants = const_cast<std::byte*>(c.constants);
    const ConstView cos = View{constants, table, DType::fp32};
    const ConstView sin = View{constants + table * sizeof(float), table, DType::fp32};
    rope(lane, b.q_rope, q_of(heads), c.batch.positions, cos, sin, inverse);
    rope(lane, b.k_rope, k_of(heads), c.batch.positions, cos, sin, inverse);
  }
  device::Dropout dropout_of(const Context& c) const {
    return {plan_->shape.attention_dropout, static_cast<std::uint32_t>(layer_ * 4 + 4), c.micro_batch, c.scalars};
  }

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
    add_blocks<Block, BlockPlan>(units, s, run);
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
