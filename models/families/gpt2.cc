// GPT-2 (Radford et al. 2019) as Hugging Face stores it: learned positions, LayerNorm before attention and MLP,
// GELU-tanh, biases, matrices as Conv1D [in, out], the head tied to the token embedding.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "models/classes.h"
#include "models/families/families.h"
#include "models/files/config.h"
#include "models/files/quantisation.h"
#include "models/layers/blocks/blocks.h"
#include "models/layers/embedding.h"
#include "models/layers/heads/heads.h"

namespace strata::models {
namespace {

struct Gpt2Shape {
  std::size_t hidden, heads, inner, layers, vocabulary, positions;
  float eps, deviation;
  float attention_dropout, residual_dropout, embedding_dropout, classifier_dropout;
  bool tied;
  Gelu gelu = Gelu::tanh;
  bool transposed = false;  // matrices are [out, in]
};

// bitsandbytes transposes the matrices that it quantises: to [out, in], the layout of all other families.
bool transposed(const Config& config, const Gpt2Shape& s, const RunShape& run) {
  if (!run.not_quantised) return false;
  for (std::size_t layer = 0; layer < s.layers; ++layer)
    for (const char* const matrix : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
      const std::string name = fmt::format("transformer.h.{}.{}.weight", layer, matrix);
      if (lies_in(*run.not_quantised, name))
        fail(
            Exit::usage,
            "{} leaves {} out of 4 bits (llm_int8_skip_modules), but a gpt2 model must have all matrices of its blocks "
            "in 4 bits or none: give the original model, with model.frozen_format = \"nf4\"",
            config.source(), name);
    }
  return true;
}

PreNormBlockSpec blocks_of(const Gpt2Shape& s) {
  const Init normal{0, s.deviation};
  // Projections onto the residual stream are scaled by 1/sqrt(2 L), because its variance would otherwise grow with
  // depth.
  const Init residual{0, s.deviation / std::sqrt(2.0f * static_cast<float>(s.layers))};
  return {.prefix = "transformer.h.",
          .attention_norm = "ln_1",
          .qkv = {{{"attn.c_attn", 3 * s.hidden, 3}}, true, normal},
          .projection = {{{"attn.c_proj", s.hidden}}, true, residual},
          .mlp_norm = "ln_2",
          .up = {{{"mlp.c_fc", s.inner}}, true, normal},
          .down = {{{"mlp.c_proj", s.hidden}}, true, residual},
          .hidden = s.hidden,
          .heads = s.heads,
          .kv_heads = s.heads,
          .head_dim = s.hidden / s.heads,
          .inner = s.inner,
          .norm = NormKind::layer,
          .eps = s.eps,
          .mlp = s.gelu == Gelu::erf ? MlpKind::gelu_erf : MlpKind::gelu_tanh,
          .layers = std::vector<PreNormBlockSpec::Layer>(s.layers),
          .input_major = !s.transposed,
          .attention_dropout = s.attention_dropout,
          .residual_dropout = s.residual_dropout};
}

Gpt2Shape read_gpt2_shape(const Config& config) {
  Gpt2Shape s{};
  s.hidden = size_or_default(config, own_or_other(config, "n_embd", "hidden_size"), 768);
  s.heads = size_or_default(config, own_or_other(config, "n_head", "num_attention_heads"), 12);
  s.layers = size_or_default(config, own_or_other(config, "n_layer", "num_hidden_layers"), 12, kMaxLayers);
  s.vocabulary = size_or_default(config, "vocab_size", 50257, kMaxWords);
  s.positions =
      size_or_default(config, own_or_other(config, "n_positions", "max_position_embeddings"), 1024, kMaxPositions);
  s.inner = size_or(config, "n_inner", 4 * s.hidden);
  s.eps = static_cast<float>(positive_or(config, "layer_norm_epsilon", 1e-5, Zero::allowed));
  s.deviation = static_cast<float>(positive_or(config, "initializer_range", 0.02, Zero::allowed));
  s.attention_dropout = dropout_probability(config, "attn_pdrop", 0.1);
  s.residual_dropout = dropout_probability(config, "resid_pdrop", 0.1);
  s.embedding_dropout = dropout_probability(config, "embd_pdrop", 0.1);
  s.classifier_dropout = dropout_probability(config, "classifier_dropout", 0.1);
  s.tied = config.bool_or("tie_word_embeddings", true);
  if (s.hidden % s.heads != 0) fail(Exit::usage, "config key n_head={} does not divide n_embd={}", s.heads, s.hidden);
  s.gelu = read_gelu(config, "activation_function");
  return s;
}

class Gpt2 final : public Model {
 public:
  Gpt2(const Gpt2Shape& s, const Classes& classes, const RunShape& run) {
    family = "gpt2";
    vocabulary = s.vocabulary;
    hidden = s.hidden;
    max_positions = s.positions;
    heads = s.heads;
    head_dim = s.hidden / s.heads;
    ignored_suffixes = {".attn.bias", ".attn.masked_bias"};
    // Layers of other heads; the last is TRL's value head.
    ignore_layers(std::to_array<std::string>(
        {"score", "classifier", "qa_outputs", "multiple_choice_head.summary", "v_head.summary"}));
    optional_prefix = "transformer.";

    const Init normal{0, s.deviation};
    units.push_back(make_embedding({"transformer.wte.weight", "transformer.wpe.weight", s.vocabulary, s.positions,
                                    s.hidden, normal, s.embedding_dropout},
                                   run));
    add_pre_norm_blocks(units, blocks_of(s), run);
    HeadSpec head{
        "transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight", s.vocabulary, s.hidden, s.eps, normal};
    if (*run.objective == Objective::causal_lm) {
      if (s.tied) head.tied = share("lm_head.weight", units, 0, 0);
      units.push_back(make_head(head, run));
      return;
    }
    // Sequences are classified by their last token, without a bias; tokens are classified after dropout.
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
                                     .dropout_after = sequences ? 0 : s.classifier_dropout},
                                    run));
    random_if_missing = {"score.weight", "classifier.weight", "classifier.bias"};
    ignored_suffixes.emplace_back("lm_head.weight");
  }
  void fill_constants(std::byte*) const override {}
};

}  // namespace

std::unique_ptr<Model> make_gpt2(const Config& config, const RunShape& run) {
  require_objective(run, "gpt2",
                    {Objective::causal_lm, Objective::sequence_classification, Objective::token_classification});
  Gpt2Shape shape = read_gpt2_shape(config);
  if (!run.training) shape.attention_dropout = shape.residual_dropout = shape.embedding_dropout = 0;
  if (!run.training) shape.classifier_dropout = 0;
  shape.transposed = transposed(config, shape, run);
  return std::make_unique<Gpt2>(shape, read_classes(config, *run.objective), run);
}

}  // namespace strata::models
