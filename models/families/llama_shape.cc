#include "models/families/llama_shape.h"

#include <string>

#include "base/error.h"
#include "models/families/families.h"

namespace strata::models {

LlamaShape read_llama_shape(const Config& config, std::size_t seq) {
  const std::string family = config.require_text("model_type");
  LlamaShape s{};
  s.hidden = size_of_key(config, "hidden_size");
  s.heads = size_of_key(config, "num_attention_heads");
  // Where a config leaves these out, transformers takes them from the other sizes in some families only; in the others
  // they are constants that fit one model.
  s.kv_heads =
      family == "llama" ? size_or(config, "num_key_value_heads", s.heads) : size_of_key(config, "num_key_value_heads");
  s.head_dim = family == "qwen3" ? size_of_key(config, "head_dim") : size_or(config, "head_dim", s.hidden / s.heads);
  if (!config.has("head_dim") && s.hidden % s.heads != 0)
    fail(Exit::usage, "config key num_attention_heads={} does not divide hidden_size={}", s.heads, s.hidden);
  s.inner = size_of_key(config, "intermediate_size");
  s.layers = size_of_key(config, "num_hidden_layers", kMostLayers);
  s.vocabulary = size_of_key(config, "vocab_size", kMostWords);
  s.positions = size_of_key(config, "max_position_embeddings", kMostPositions);
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
  if (s.query_width() > kMostWidth)
    fail(Exit::usage,
         "config keys num_attention_heads={} and head_dim={} make more than {} columns, the most that is built",
         s.heads, s.head_dim, kMostWidth);
  if (s.head_dim % 2 != 0) fail(Exit::usage, "config key head_dim={} is odd: rotary positions need pairs", s.head_dim);
  require_one_of(config, "hidden_act", {"silu", "swish"}, "silu");

  s.rotary = read_rotary_table(config, s.head_dim, s.positions);
  require_bool(config, "use_mrope", false, false);  // in the files of Qwen2.5: positions of images

  // Mistral's window holds unless it is null; Qwen's where use_sliding_window says so. Llama knows none.
  const std::size_t window = config.is_null("sliding_window") ? 0 : size_or(config, "sliding_window", 4096);
  if (family == "mistral" && window < seq) s.window = window;
  const bool use_window = config.bool_or("use_sliding_window", false) && family.starts_with("qwen");
  if (use_window && window != 0 && window < seq)
    fail(Exit::usage,
         "{} is true with a window of {} below data.seq_len={}: windows of single layers are not built yet",
         config.describe("use_sliding_window"), window, seq);
  // Says which layers have the window, which above counts for all or for none.
  for (const std::string& type : config.texts("layer_types"))
    if (type != "full_attention" && type != "sliding_attention")
      fail(Exit::usage, "{} has \"{}\", which is not built yet; full_attention and sliding_attention are",
           config.describe("layer_types"), type);
  return s;
}

}  // namespace strata::models
