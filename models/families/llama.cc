// The Llama family (Touvron et al. 2023) as Hugging Face stores it: RMSNorm before attention and MLP, rotary positions,
// grouped-query attention, SwiGLU, no biases. Mistral adds a sliding window; Qwen2 adds biases for q, k and v, and a
// window in some layers; Qwen3 adds an RMSNorm on each query and key head.
#include "models/families/llama.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/classes.h"
#include "models/families/families.h"
#include "models/layers/blocks/blocks.h"
#include "models/layers/embedding.h"
#include "models/layers/heads/heads.h"

namespace strata::models {
namespace {

// For each layer, the number of tokens that a position sees, or 0, as in transformers 5. Llama has no window, whatever
// its keys say. Mistral's window applies to all layers, unless layer_types selects some (AutoModel takes this key as
// the sign of Ministral). Qwen's, if use_sliding_window is true, applies from layer max_window_layers on, unless
// layer_types selects some.
std::vector<std::size_t> read_windows(const Config& config, const std::string& family, std::size_t layers) {
  const bool mistral = family == "mistral";
  std::vector<bool> windowed = sliding_layers(config, layers);
  const bool use_window = config.bool_or("use_sliding_window", false);
  const auto first = std::max<std::int64_t>(config.int_or("max_window_layers", 28), 0);
  config.ignore({"sliding_window"});
  std::vector<std::size_t> windows(layers);
  if (family == "llama") return windows;

  const bool there = !config.is_null("sliding_window") && (mistral || use_window);
  if (windowed.empty()) {
    windowed.resize(layers);
    for (std::size_t layer = 0; layer < layers; ++layer)
      windowed[layer] = there && (mistral || static_cast<std::int64_t>(layer) >= first);
  }
  if (std::ranges::find(windowed, true) == windowed.end()) return windows;
  if (!there)
    fail(Exit::usage, "{} has sliding_attention, but the model has no window: {}", config.describe("layer_types"),
         mistral ? "sliding_window is null; give it a number of tokens"
                 : "set use_sliding_window to true and sliding_window to a number of tokens");
  const std::size_t window = size_or(config, "sliding_window", 4096, kMaxPositions);
  for (std::size_t layer = 0; layer < layers; ++layer) windows[layer] = windowed[layer] ? window : 0;
  return windows;
}

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
    // Positions beyond the sequence are never looked up.
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
    random_if_missing = {"score.weight", "score.bias"};
    ignored_suffixes.emplace_back("lm_head.weight");
  }

  void fill_constants(std::byte* constants) const override { shape_.rotary.fill(shape_.positions, constants); }

 private:
  LlamaShape shape_;
  RunShape run_;
};

}  // namespace

LlamaShape read_llama_shape(const Config& config, std::size_t seq) {
  const std::string family = config.require_text("model_type");
  LlamaShape s{};
  s.hidden = size_or_default(config, "hidden_size", 4096);
  s.heads = size_or_default(config, "num_attention_heads", 32);
  const bool mistral = family == "mistral", qwen = family.starts_with("qwen");
  // In some families, transformers derives a missing value from the other sizes. In others the default is a constant.
  s.kv_heads = family == "llama" || config.is_null("num_key_value_heads")
                   ? size_or(config, "num_key_value_heads", s.heads)
                   : size_or_default(config, "num_key_value_heads", mistral ? 8 : 32);
  s.head_dim =
      family == "qwen3" ? size_or_default(config, "head_dim", 128) : size_or(config, "head_dim", s.hidden / s.heads);
  if (!config.has("head_dim") && family != "qwen3" && s.hidden % s.heads != 0)
    fail(Exit::usage, "config key num_attention_heads={} does not divide hidden_size={}", s.heads, s.hidden);
  s.inner = size_or_default(config, "intermediate_size", qwen ? 22016 : mistral ? 14336 : 11008);
  s.layers = size_or_default(config, "num_hidden_layers", 32, kMaxLayers);
  s.vocabulary = size_or_default(config, "vocab_size", qwen ? 151936 : 32000, kMaxWords);
  s.positions = size_or_default(config, "max_position_embeddings",
                                qwen      ? 32768
                                : mistral ? 131072
                                          : 2048,
                                kMaxPositions);
  s.eps = static_cast<float>(positive_or(config, "rms_norm_eps", 1e-6, Zero::allowed));
  s.deviation = static_cast<float>(positive_or(config, "initializer_range", 0.02, Zero::allowed));
  s.attention_dropout = dropout_probability(config, "attention_dropout", 0.0);
  s.tied = config.bool_or("tie_word_embeddings", false);
  const bool attention_bias = config.bool_or("attention_bias", false);
  if (family == "mistral") require_bool(config, "attention_bias", false, false);
  if (family != "llama") require_bool(config, "mlp_bias", false, false);
  s.qkv_bias = family == "qwen2" || attention_bias;
  s.output_bias = family != "qwen2" && attention_bias;
  s.mlp_bias = config.bool_or("mlp_bias", false);
  s.qk_norm = family == "qwen3";
  if (s.heads % s.kv_heads != 0)
    fail(Exit::usage, "config key num_key_value_heads={} does not divide num_attention_heads={}", s.kv_heads, s.heads);
  if (s.query_width() > kMaxWidth)
    fail(Exit::usage,
         "config keys num_attention_heads={} and head_dim={} make more than {} columns, the supported maximum", s.heads,
         s.head_dim, kMaxWidth);
  if (s.head_dim % 2 != 0) fail(Exit::usage, "config key head_dim={} is odd: rotary positions need pairs", s.head_dim);
  require_one_of(config, "hidden_act", {"silu", "swish"}, "silu");

  s.rotary = read_rotary_table(config, s.head_dim, s.positions);

  s.windows = read_windows(config, family, s.layers);
  for (std::size_t& window : s.windows)
    if (window >= seq) window = 0;  // the window covers the whole sequence
  return s;
}

std::unique_ptr<Model> make_llama(const Config& config, const RunShape& run) {
  require_objective(run, config.require_text("model_type"),
                    {Objective::causal_lm, Objective::sequence_classification, Objective::token_classification});
  return std::make_unique<Llama>(config, run);
}

}  // namespace strata::models
