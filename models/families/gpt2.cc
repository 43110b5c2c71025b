// GPT-2 (Radford et al. 2019) as Hugging Face stores it: learned positions, LayerNorm before attention and MLP,
// GELU-tanh, biases, matrices as Conv1D [in, out], the head tied to the token embedding.
#include <algorithm>
#include <cmath>
#include <memory>

#include "device/ops/dropout.h"
#include "models/classes.h"
#include "models/families/families.h"
#include "models/files/config.h"
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

struct Shape {
  std::size_t hidden, heads, inner, layers, vocabulary, positions;
  float eps, deviation;
  float attention_dropout, residual_dropout, embedding_dropout, classifier_dropout;
  bool tied;
};

// Offsets of a block's parameters in its flat buffer; the same for every block.
struct Offsets {
  std::size_t ln1_gain, ln1_bias, qkv, qkv_bias, projection, projection_bias, ln2_gain, ln2_bias, up, up_bias, down,
      down_bias;
};

// The operations of a block, prepared once and shared by all of them.
struct BlockPlan : BlockOperations {
  BlockPlan(const Shape& s, const RunShape& run, const Offsets& o)
      : BlockOperations{run.tokens(),
                        s.hidden,
                        run.dtype,
                        run.threads,
                        AttentionPart({.heads = s.heads,
                                       .kv_heads = s.heads,
                                       .head_dim = s.hidden / s.heads,
                                       .dropout = s.attention_dropout},
                                      run),
                        linear(run, s.hidden, {3 * s.hidden, o.qkv, o.qkv_bias}),
                        linear(run, s.hidden, {s.hidden, o.projection, o.projection_bias}),
                        linear(run, s.hidden, {s.inner, o.up, o.up_bias}, Gelu::tanh),
                        linear(run, s.inner, {s.hidden, o.down, o.down_bias}, Gelu::none, /*gelu_before=*/Gelu::tanh)},
        shape(s),
        norm1(NormKind::layer, norm_of_rows(tokens, s.hidden, s.eps), o.ln1_gain, o.ln1_bias),
        norm2(NormKind::layer, norm_of_rows(tokens, s.hidden, s.eps), o.ln2_gain, o.ln2_bias) {
    const DType t = run.dtype;
    Slots save;
    mean1 = save.add(tokens, DType::fp32);
    rstd1 = save.add(tokens, DType::fp32);
    normed1 = save.add(tokens * s.hidden, t);
    heads = save.add(tokens * 3 * s.hidden, t);
    mixed = save.add(tokens * s.hidden, t);
    lse = save.add(tokens * s.heads, DType::fp32);
    middle = save.add(tokens * s.hidden, t);
    mean2 = save.add(tokens, DType::fp32);
    rstd2 = save.add(tokens, DType::fp32);
    normed2 = save.add(tokens * s.hidden, t);
    inner = save.add(tokens * s.inner, t);
    active = save.add(tokens * s.inner, t);
    bytes.saved = save.bytes();
    bytes.cache = attention.cache_bytes();

    Slots work;
    scratch = work.add_bytes(std::max(scratch_bytes(), norm1.scratch_bytes()));
    narrow = work.add(tokens * s.hidden, t);
    bytes.forward_workspace = work.bytes();
    wide = work.add(tokens * std::max(s.inner, 3 * s.hidden), t);
    dropped = work.add(s.residual_dropout > 0 ? tokens * s.hidden : 0, t);
    bytes.backward_workspace = work.bytes();
  }
  static Linear linear(const RunShape& run, std::size_t in, const Linear::Tensor& tensor, Gelu gelu_behind = Gelu::none,
                       Gelu gelu_before = Gelu::none) {
    return Linear({run.tokens(), in, {tensor}, true, true, run.dtype, run.device, gelu_behind, gelu_before});
  }

  Shape shape;
  NormPart norm1, norm2;
  Slot mean1, rstd1, normed1, heads, mixed, lse, middle, mean2, rstd2, normed2, inner, active;  // saved
  Slot scratch, narrow, wide, dropped;                                                          // workspace
};

class Block final : public BlockUnit<BlockPlan> {
 public:
  Block(const Shape& s, std::size_t layer) : BlockUnit(layer) {
    const std::string p = "transformer.h." + std::to_string(layer) + ".";
    const auto d = static_cast<std::int64_t>(s.hidden), f = static_cast<std::int64_t>(s.inner);
    const Init one{1, 0}, zero{0, 0}, normal{0, s.deviation};
    // Projections onto the residual stream are scaled by 1/sqrt(2 L): its variance would grow with depth.
    const Init residual{0, s.deviation / std::sqrt(2.0f * static_cast<float>(s.layers))};
    offsets_.ln1_gain = add_parameter(p + "ln_1.weight", {d}, false, one);
    offsets_.ln1_bias = add_parameter(p + "ln_1.bias", {d}, false, zero);
    offsets_.qkv = add_parameter(p + "attn.c_attn.weight", {d, 3 * d}, true, normal);
    offsets_.qkv_bias = add_parameter(p + "attn.c_attn.bias", {3 * d}, false, zero);
    end_part();
    offsets_.projection = add_parameter(p + "attn.c_proj.weight", {d, d}, true, residual);
    offsets_.projection_bias = add_parameter(p + "attn.c_proj.bias", {d}, false, zero);
    offsets_.ln2_gain = add_parameter(p + "ln_2.weight", {d}, false, one);
    offsets_.ln2_bias = add_parameter(p + "ln_2.bias", {d}, false, zero);
    end_part();
    offsets_.up = add_parameter(p + "mlp.c_fc.weight", {d, f}, true, normal);
    offsets_.up_bias = add_parameter(p + "mlp.c_fc.bias", {f}, false, zero);
    end_part();
    offsets_.down = add_parameter(p + "mlp.c_proj.weight", {f, d}, true, residual);
    offsets_.down_bias = add_parameter(p + "mlp.c_proj.bias", {d}, false, zero);
    end_part();
  }
  const Offsets& offsets() const { return offsets_; }

  std::size_t saving_parts() const override { return kDown; }

  void forward(Lane& lane, const Context& c, std::size_t which, ConstView x, View y, View saved) const override {
    const BlockPlan& b = plan_of(c);
    const View scratch = b.scratch.of(c.workspace), narrow = b.narrow.of(c.workspace);
    const View heads = b.heads.of(saved), middle = b.middle.of(saved);
    switch (which) {
      case kAttention:
        b.norm1.forward(lane, c.parameters, x, b.normed1.of(saved), b.mean1.of(saved), b.rstd1.of(saved));
        b.qkv.forward(lane, c.parameters, b.normed1.of(saved), heads, scratch);
        b.attention.forward(lane, c, heads, b.mixed.of(saved), b.lse.of(saved), dropout_of(c, 0), scratch);
        return;
      case kProjection:
        b.projection.forward(lane, c.parameters, b.mixed.of(saved), narrow, scratch);
        dropout(lane, dropout_of(c, 1), narrow, x, middle);
        b.norm2.forward(lane, c.parameters, middle, b.normed2.of(saved), b.mean2.of(saved), b.rstd2.of(saved));
        return;
      case kUp:
        b.up.forward(lane, c.parameters, b.normed2.of(saved), b.inner.of(saved), scratch, b.active.of(saved));
        return;
      case kDown:
        if (!y) return;
        b.down.forward(lane, c.parameters, b.active.of(saved), narrow, scratch);
        dropout(lane, dropout_of(c, 2), narrow, middle, y);
        return;
    }
  }

  void backward(Lane& lane, const Context& c, std::size_t which, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    const BlockPlan& b = *plan_;
    const View scratch = b.scratch.of(c.workspace), narrow = b.narrow.of(c.workspace);
    const View d_inner = b.wide.of(c.workspace).sub(0, b.tokens * b.shape.inner);
    const View d_heads = b.wide.of(c.workspace).sub(0, b.tokens * 3 * b.shape.hidden);
    const View dropped = b.dropped.of(c.workspace);
    switch (which) {
      case kDown: {
        const ConstView d_down = through_dropout(lane, dropout_of(c, 2), dy, dropped);
        b.down.backward_parameters(lane, b.active.of(saved), d_down, gradients, scratch);
        b.down.backward_input(lane, c.parameters, d_down, d_inner, scratch, b.inner.of(saved));
        return;
      }
      case kUp:
        b.up.backward_parameters(lane, b.normed2.of(saved), d_inner, gradients, scratch);
        b.up.backward_input(lane, c.parameters, d_inner, narrow, scratch);
        return;
      case kProjection: {
        b.norm2.backward(lane, c.parameters, narrow, b.middle.of(saved), b.mean2.of(saved), b.rstd2.of(saved), dy, dx,
                         gradients, scratch);
        const ConstView d_projection = through_dropout(lane, dropout_of(c, 1), dx, dropped);
        b.projection.backward_parameters(lane, b.mixed.of(saved), d_projection, gradients, scratch);
        b.projection.backward_input(lane, c.parameters, d_projection, narrow, scratch);
        return;
      }
      case kAttention:
        b.attention.backward(lane, c, b.heads.of(saved), b.mixed.of(saved), b.lse.of(saved), narrow, d_heads,
                             dropout_of(c, 0), scratch);
        b.qkv.backward_parameters(lane, b.normed1.of(saved), d_heads, gradients, scratch);
        b.qkv.backward_input(lane, c.parameters, d_heads, narrow, scratch);
        b.norm1.backward(lane, c.parameters, narrow, x, b.mean1.of(saved), b.rstd1.of(saved), dx, dx, gradients,
                         scratch);
        return;
    }
  }

 private:
  // The parts, in the order of the flat buffer; backward carries gradients between them in `narrow` and `wide`.
  enum : std::size_t { kAttention, kProjection, kUp, kDown };

  // Of the attention's probabilities (0), and of what its projection (1) and the MLP (2) add.
  device::Dropout dropout_of(const Context& c, std::uint32_t place) const {
    const Shape& s = plan_->shape;
    return dropout_at(c, place, place == 0 ? s.attention_dropout : s.residual_dropout);
  }

  Offsets offsets_{};
};

Shape read_shape(const Config& config) {
  Shape s{};
  s.hidden = size_or_default(config, own_or_other(config, "n_embd", "hidden_size"), 768);
  s.heads = size_or_default(config, own_or_other(config, "n_head", "num_attention_heads"), 12);
  s.layers = size_or_default(config, own_or_other(config, "n_layer", "num_hidden_layers"), 12, kMostLayers);
  s.vocabulary = size_or_default(config, "vocab_size", 50257, kMostWords);
  s.positions =
      size_or_default(config, own_or_other(config, "n_positions", "max_position_embeddings"), 1024, kMostPositions);
  s.inner = size_or(config, "n_inner", 4 * s.hidden);
  s.eps = static_cast<float>(positive_or(config, "layer_norm_epsilon", 1e-5, Zero::allowed));
  s.deviation = static_cast<float>(positive_or(config, "initializer_range", 0.02, Zero::allowed));
  s.attention_dropout = dropout_probability(config, "attn_pdrop", 0.1);
  s.residual_dropout = dropout_probability(config, "resid_pdrop", 0.1);
  s.embedding_dropout = dropout_probability(config, "embd_pdrop", 0.1);
  s.classifier_dropout = dropout_probability(config, "classifier_dropout", 0.1);
  s.tied = config.bool_or("tie_word_embeddings", true);
  if (s.hidden % s.heads != 0) fail(Exit::usage, "config key n_head={} does not divide n_embd={}", s.heads, s.hidden);
  require_gelu_tanh(config, "activation_function");
  return s;
}

class Gpt2 final : public Model {
 public:
  Gpt2(const Shape& s, const Classes& classes, const RunShape& run) {
    family = "gpt2";
    vocabulary = s.vocabulary;
    hidden = s.hidden;
    max_positions = s.positions;
    heads = s.heads;
    head_dim = s.hidden / s.heads;
    ignored_suffixes = {".attn.bias", ".attn.masked_bias"};
    optional_prefix = "transformer.";

    const Init normal{0, s.deviation};
    units.push_back(make_embedding({"transformer.wte.weight", "transformer.wpe.weight", s.vocabulary, s.positions,
                                    s.hidden, normal, s.embedding_dropout},
                                   run));
    add_blocks<Block, BlockPlan>(units, s, run);
    HeadSpec head{
        "transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight", s.vocabulary, s.hidden, s.eps, normal};
    if (*run.objective == Objective::causal_lm) {
      if (s.tied) head.tied = share("lm_head.weight", units, 0, 0);
      units.push_back(make_head(head, run));
      return;
    }
    // Of texts the last token, without a bias; of tokens through dropout.
    const bool sequences = *run.objective == Objective::sequence_classification;
    units.push_back(make_class_head({.hidden = s.hidden,
                                     .classes = classes.names.size(),
                                     .target = classes.target,
                                     .init = normal,
                                     .norm_gain = head.gain_name,
                                     .norm_bias = head.bias_name,
                                     .eps = s.eps,
                                     .scores = sequences ? "score" : "classifier",
                                     .biased = !sequences,
                                     .dropout_behind = sequences ? 0 : s.classifier_dropout},
                                    run));
    drawn_if_missing = {"score.weight", "classifier.weight", "classifier.bias"};
    ignored_suffixes.emplace_back("lm_head.weight");
  }
  void fill_constants(std::byte*) const override {}
};

}  // namespace

std::unique_ptr<Model> make_gpt2(const Config& config, const RunShape& run) {
  require_objective(run, "gpt2",
                    {Objective::causal_lm, Objective::sequence_classification, Objective::token_classification});
  Shape shape = read_shape(config);
  if (!run.training) shape.attention_dropout = shape.residual_dropout = shape.embedding_dropout = 0;
  if (!run.training) shape.classifier_dropout = 0;
  return std::make_unique<Gpt2>(shape, read_classes(config, *run.objective), run);
}

}  // namespace strata::models
