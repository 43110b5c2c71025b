// The Llama family (Touvron et al. 2023) as Hugging Face stores it: RMSNorm before attention and MLP, rotary positions,
// grouped-query attention, SwiGLU, no biases. Mistral adds a sliding window; Qwen2 adds biases for q, k and v, and a
// window in some layers; Qwen3 adds an RMSNorm on each query and key head.
#include <algorithm>
#include <array>
#include <memory>

#include "models/classes.h"
#include "models/families/families.h"
#include "models/families/llama_shape.h"
#include "models/layers/blocks/pre_norm_block.h"
#include "models/layers/embedding.h"
#include "models/layers/heads/class_head.h"
#include "models/layers/heads/head.h"

namespace strata::models {
namespace {

PreNormBlockSpec blocks_of(const LlamaShape& s) {
  const Init normal{0, s.deviation};
  PreNormBlockSpec spec{.prefix = "model.layers.",
                        .attention_norm = "input_layernorm",
                        .qkv = {{{"self_attn.q_proj", s.query_width()},
                                 {"self_attn.k_proj", s.key_width()},
                                 {"self_attn.v_proj", s.key_width()}},
                                s.qkv_bias,
                                normal},
                        .q_norm = s.qk_norm ? "self_attn.q_norm" : "",
                        .k_norm = s.qk_norm ? "self_attn.k_norm" : "",
                        .projection = {{{"self_attn.o_proj", s.hidden}}, s.output_bias, normal},
                        .mlp_norm = "post_attention_layernorm",
                        .up = {{{"mlp.gate_proj", s.inner}, {"mlp.up_proj", s.inner}}, s.mlp_bias, normal},
                        .down = {{{"mlp.down_proj", s.hidden}}, s.mlp_bias, normal},
                        .hidden = s.hidden,
                        .heads = s.heads,
                        .kv_heads = s.kv_heads,
                        .head_dim = s.head_dim,
                        .inner = s.inner,
                        .norm = NormKind::root_mean_square,
                        .eps = s.eps,
                        .mlp = MlpKind::swiglu,
                        .attention_dropout = s.attention_dropout,
                        .positions = s.positions};
  for (const std::size_t window : s.windows) spec.layers.push_back({.window = window, .angles = 0});
  return spec;
}

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
    // Layers of other heads; the last is TRL's value head.
    ignore_layers(std::to_array<std::string>({"score", "qa_outputs", "v_head.summary"}));
    optional_prefix = "model.";
    // Positions past the sequence are never looked up.
    shape_.positions = std::min(s.positions, std::max(run.seq, run.cache));
    constants_bytes = s.rotary.bytes(shape_.positions);

    const Init normal{0, s.deviation};
    units.push_back(make_embedding({"model.embed_tokens.weight", "", s.vocabulary, 0, s.hidden, normal, 0}, run));
    add_pre_norm_blocks(units, blocks_of(s), run);
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
                                     .dropout_after = sequences || !run.training ? 0 : dropout},
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
