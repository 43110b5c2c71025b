#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/number.h"
#include "base/words.h"
#include "models/families/families.h"
#include "models/files/quantisation.h"

namespace strata::models {
namespace {

// The facts about a family that other families' keys may agree with.
struct Facts {
  bool llama, qwen2, qwen3, gpt2, modernbert;
  double hidden, heads, layers, head_dim;

  bool rotary() const { return llama || modernbert; }
};

Facts facts_of(const Config& config) {
  const std::string family = config.has("model_type") ? config.json("model_type") : "";
  const auto is = [&](std::string_view name) { return family == fmt::format("\"{}\"", name); };
  const bool llama = is("llama") || is("mistral") || is("qwen2") || is("qwen3");
  // A missing size has the default of transformers' class, which the family uses too.
  const auto number = [&](std::initializer_list<std::string_view> keys, double otherwise) {
    return parse_number<double>(config.json(config.spelled(keys))).value_or(otherwise);
  };
  Facts f{.llama = llama,
          .qwen2 = is("qwen2"),
          .qwen3 = is("qwen3"),
          .gpt2 = is("gpt2"),
          .modernbert = is("modernbert"),
          .hidden = number({"hidden_size", "n_embd", "dim"}, llama ? 4096 : 768),
          .heads = number({"num_attention_heads", "n_head", "n_heads"}, llama ? 32 : 12),
          .layers = number({"num_hidden_layers", "n_layer", "n_layers"}, llama              ? 32
                                                                         : is("modernbert") ? 22
                                                                         : is("distilbert") ? 6
                                                                                            : 12),
          .head_dim = 0};
  f.head_dim = llama ? number({"head_dim"}, 0) : 0;
  if (f.head_dim == 0 && f.heads > 0) f.head_dim = is("qwen3") ? 128 : f.hidden / f.heads;
  return f;
}

// Null, false, 0, and empty values.
bool is_off(const std::string& json) {
  if (const auto number = parse_number<double>(json)) return *number == 0;
  return json == "null" || json == "false" || json == "[]" || json == "{}" || json == "\"\"" || json == "\"none\"";
}
bool is_number(const std::string& json, double wanted) {
  const auto number = parse_number<double>(json);
  return json == "null" || (number && std::abs(*number - wanted) <= 1e-6 * std::abs(wanted));
}

// True if a value changes nothing.
using HasNoEffect = bool (*)(const std::string& json, const Facts& facts);
constexpr HasNoEffect kOff = [](const std::string& json, const Facts&) { return is_off(json); };
constexpr HasNoEffect kOn = [](const std::string& json, const Facts&) { return json == "null" || json == "true"; };
constexpr HasNoEffect kOne = [](const std::string& json, const Facts&) { return is_number(json, 1); };
constexpr HasNoEffect kAtMostOne = [](const std::string& json, const Facts&) {
  return is_off(json) || is_number(json, 1);
};
constexpr HasNoEffect kAllOne = [](const std::string& json, const Facts&) {
  for (std::size_t at = json.find_first_not_of("[], "); json != "null" && at != std::string::npos;) {
    const std::size_t end = std::min(json.find_first_of("[], ", at), json.size());
    if (!is_number(json.substr(at, end - at), 1)) return false;
    at = json.find_first_not_of("[], ", end);
  }
  return true;
};
constexpr HasNoEffect kHidden = [](const std::string& json, const Facts& f) { return is_number(json, f.hidden); };
constexpr HasNoEffect kHeadDim = [](const std::string& json, const Facts& f) {
  return json == "null" || (f.head_dim > 0 && is_number(json, f.head_dim));
};
constexpr HasNoEffect kSoftmaxScale = [](const std::string& json, const Facts& f) {
  return json == "null" || (f.head_dim > 0 && is_number(json, 1 / std::sqrt(f.head_dim)));
};
constexpr HasNoEffect kRootOfLayers = [](const std::string& json, const Facts& f) {
  return is_number(json, std::sqrt(f.layers));
};
constexpr HasNoEffect kRotaryShare = [](const std::string& json, const Facts& f) {
  return is_off(json) ? !f.rotary() || json == "null" : f.rotary() && is_number(json, 1);
};
constexpr HasNoEffect kRotaryWidth = [](const std::string& json, const Facts& f) {
  return is_off(json) ? !f.rotary() || json == "null" : f.rotary() && is_number(json, f.head_dim);
};
constexpr HasNoEffect kRotary = [](const std::string& json, const Facts& f) {
  return json == "null" || json == (f.rotary() ? "true" : "false");
};
constexpr HasNoEffect kNormOfHeads = [](const std::string& json, const Facts& f) {
  return is_off(json) || (f.qwen3 && json == "true");
};
// Biases of all layers, and of queries, keys and values.
constexpr HasNoEffect kBias = [](const std::string& json, const Facts& f) {
  return json == "null" || json == (f.rotary() ? "false" : "true");
};
constexpr HasNoEffect kQkvBias = [](const std::string& json, const Facts& f) {
  return json == "null" || json == (f.qwen2 || !f.rotary() ? "true" : "false");
};
constexpr HasNoEffect kQkvBiasOfLlama = [](const std::string& json, const Facts&) {
  return json == "null" || json == "true" || json == "false";
};
constexpr HasNoEffect kCausal = [](const std::string& json, const Facts& f) {
  return json == "null" || json == (f.llama || f.gpt2 ? "true" : "false");
};
constexpr HasNoEffect kManyHeads = [](const std::string& json, const Facts&) {
  return json == "null" || json == "\"multihead\"" || json == "\"multi_head\"" || json == "\"mha\"";
};

struct UnsupportedKeys {
  std::string_view keys;  // words
  HasNoEffect inert;
  std::string_view what;
};
constexpr std::string_view kExperts = "layers of experts (mixture of experts) are not supported";
constexpr std::string_view kSoftCap = "a soft cap (tanh) of scores or logits is not supported";
constexpr std::string_view kScaled = "scaling other than the family's own is not supported; only 1 is";
constexpr std::string_view kScores = "attention scores scaled by anything but 1 / sqrt(head_dim) are not supported";
constexpr std::string_view kLatent = "attention over compressed keys and values (latent attention) is not supported";
constexpr std::string_view kAlibi = "ALiBi, which adds a slope to attention in place of positions, is not supported";
constexpr std::string_view kPartial = "rotary positions on only a part of each head are not supported";
constexpr std::string_view kInterleaved =
    "rotary positions that pair neighbouring columns are not supported; those that pair halves are";
constexpr std::string_view kNoPositions = "layers without rotary positions are not supported";
constexpr std::string_view kOtherPositions = "positions of a kind other than the family's are not supported";
constexpr std::string_view kHeadNorm = "a norm of queries and keys is not supported in this family; qwen3 has it";
constexpr std::string_view kParallel = "attention and MLP side by side (a parallel residual) are not supported";
constexpr std::string_view kBiases = "biases in layers other than the family's are not supported";
constexpr std::string_view kOneKey = "attention with a single key and value head is not supported in this family";
constexpr std::string_view kDirection =
    "decoders that attend to later tokens, and encoders that do not, are not supported";
constexpr std::string_view kCross = "attention to another model's output (cross-attention) is not supported";
constexpr std::string_view kQuantised =
    "quantised weights are not supported; give the original model, or one that was converted back to "
    "bfloat16 (dequantize)";
constexpr std::string_view kDraft = "this is a draft model, which continues another model's work, and is not supported";
constexpr std::string_view kAhead = "heads that predict several tokens ahead are not supported";
constexpr std::string_view kImages = "models of images or audio are not supported";
constexpr std::string_view kState = "state-space layers (Mamba) are not supported";
constexpr std::string_view kWindows = "attention in windows of this kind is not supported";
constexpr std::string_view kPerLayer = "layers of different shapes are not supported";

constexpr UnsupportedKeys kForeign[] = {
    {"num_experts_per_tok num_experts_per_token num_local_experts num_experts n_routed_experts num_routed_experts "
     "moe_num_experts num_moe_experts n_experts moe_top_k moe_topk moe_k top_k_experts",
     kAtMostOne, kExperts},
    {"logit_scale logits_scaling logits_scale output_multiplier_scale lm_head_multiplier embedding_multiplier "
     "embedding_multiplier_scale embedding_scale emb_scale scale_emb residual_multiplier residual_scale "
     "key_multiplier attention_in_multiplier attention_out_multiplier mup_scale_factor mup_embeddings_scale "
     "mup_output_alpha mup_width_scale width_scale",
     kOne, kScaled},
    {"scale_embedding scale_embeddings normalize_embedding", kOff, kScaled},
    {"mlp_multipliers", kAllOne, kScaled},
    {"scale_depth", kRootOfLayers,
     "scaled residual sums are not supported; only the square root of the number of layers changes "
     "nothing"},
    {"dim_model_base", kHidden, "scaled logits are not supported; only hidden_size changes nothing"},
    {"attention_multiplier attention_scale softmax_scale", kSoftmaxScale, kScores},
    {"query_pre_attn_scalar", kHeadDim, kScores},
    {"scale_attn_by_inverse_layer_idx", kOff, "attention scaled by the layer's number is not supported"},
    {"scale_attn_weights", kOn, kScores},
    {"attn_temperature_tuning", kOff, kScores},
    {"q_lora_rank kv_lora_rank qk_rope_head_dim qk_nope_head_dim", kOff, kLatent},
    {"v_head_dim", kHeadDim, kLatent},
    {"partial_rotary_factor rotary_pct rope_pct rotary_percentage rotary_emb_fraction", kRotaryShare, kPartial},
    {"rotary_dim rotary_ndims", kRotaryWidth, kPartial},
    {"rope_interleaved rope_interleave rotary_interleaved rotary_emb_interleaved", kOff, kInterleaved},
    {"no_rope_layers", kAllOne, kNoPositions},
    {"no_rope_layer_interval nope_layer_interval", kOff, kNoPositions},
    {"use_rope rotary use_rotary use_rotary_embeddings", kRotary, kOtherPositions},
    {"rotary_value relative_attention relative_attention_num_buckets", kOff, kOtherPositions},
    {"use_mrope", kOff, "image positions are not supported"},
    {"use_qk_norm qk_norm qk_layernorm attn_qk_norm", kNormOfHeads, kHeadNorm},
    {"clip_qkv", kOff, "clipped queries, keys and values are not supported"},
    {"use_parallel_residual parallel_residual parallel_attn parallel_attention", kOff, kParallel},
    {"use_qkv_bias qkv_bias add_qkv_bias", kQkvBias, kBiases},
    {"use_bias bias add_bias_linear", kBias, kBiases},
    {"multi_query multi_query_attention", kOff, kOneKey},
    {"attention_head_type", kManyHeads, kOneKey},
    {"is_causal", kCausal, kDirection},
    {"add_cross_attention cross_attention_layers", kOff, kCross},
    {"is_encoder_decoder", kOff, "encoder-decoder models are not supported"},
    {"quantization quantization_config compression_config quant_config quant_method quantize load_in_4bit "
     "load_in_8bit",
     kOff, kQuantised},
    {"dflash_config num_target_layers target_layer_ids speculators_config speculators_model_type medusa_num_heads "
     "medusa_num_layers",
     kOff, kDraft},
    {"num_nextn_predict_layers", kOff, kAhead},
    {"n_future_tokens", kAtMostOne, kAhead},
    {"vision_config audio_config mm_vision_tower vision_tower mm_projector_type", kOff, kImages},
    {"attention_window attention_chunk_size attention_layers attention_types", kOff, kWindows},
    {"attn_layer_period", kOff, kState},
    {"embedding_size word_embed_proj_dim", kHidden,
     "embedding tables of a width other than hidden_size are not supported"},
    {"per_layer_config block_configs pruned_heads", kOff, kPerLayer},
    {"num_hidden_groups", kOff, "layers that share their weights are not supported"},
};
// A word that occurs in any other key.
struct UnsupportedWord {
  std::string_view word;
  bool begins;  // only at the start
  std::string_view what;
};
constexpr UnsupportedWord kForeignWords[] = {
    {"expert", false, kExperts},   {"moe_", true, kExperts}, {"softcap", false, kSoftCap},
    {"soft_cap", false, kSoftCap}, {"alibi", false, kAlibi}, {"mamba_", true, kState},
    {"ssm_", true, kState},        {"eagle_", true, kDraft}, {"medusa_", true, kDraft},
    {"num_mtp_", true, kAhead},
};

// True if the loader does not use these quantization settings, or files/quantisation.h reads them.
bool quantises_nothing(const Config& config, const std::string& group) {
  if (group == "quantization_config" && quantisation_of(config)) return true;
  const std::string four = config.json(group + ".load_in_4bit"), eight = config.json(group + ".load_in_8bit");
  if (four == "null" && eight == "null") return false;
  return is_off(four) && is_off(eight) && is_off(config.json(group + ".bits"));
}

// The setting that best identifies a group of quantization settings.
std::string main_key(const Config& config, const std::string& group) {
  for (const char* name : {".load_in_8bit", ".load_in_4bit", ".quant_method", ".bits"})
    if (!is_off(config.json(group + name))) return group + name;
  return config.keys_inside(group).empty() ? group : fmt::format("{}.{}", group, config.keys_inside(group).front());
}

void refuse_draft_model(const Config& config) {
  for (const std::string& name : config.texts("architectures")) {
    std::string lower(name);
    std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
    for (const char* word : {"eagle", "medusa", "draft", "speculator", "hydra", "nextn"})
      if (lower.find(word) != std::string::npos)
        fail(Exit::usage, "{} names {}: {}", config.describe("architectures"), name, kDraft);
  }
  // Draft models have a smaller vocabulary.
  const std::string draft = config.json("draft_vocab_size");
  if (draft != "null" && draft != config.json("vocab_size"))
    fail(Exit::usage, "{} is {}: {}", config.describe("draft_vocab_size"), draft, kDraft);
  config.ignore({"draft_vocab_size"});
}

void refuse_positions(const Config& config, const Facts& f) {
  const std::string kind = config.text_or("position_embedding_type", "");
  if (kind == "alibi") fail(Exit::usage, "{} is \"alibi\": {}", config.describe("position_embedding_type"), kAlibi);
  if (kind.starts_with("relative"))
    fail(Exit::usage, "{} is \"{}\": relative positions (Shaw et al. 2018) are not supported",
         config.describe("position_embedding_type"), kind);
  const bool known = kind.empty() || (f.rotary() ? kind == "rope" || kind == "rotary" : kind == "learned") ||
                     (f.modernbert && kind == "sans_pos") || (kind == "absolute" && !f.llama) ||
                     (f.gpt2 && kind == "learned_absolute");
  if (!known) fail(Exit::usage, "{} is \"{}\": {}", config.describe("position_embedding_type"), kind, kOtherPositions);
}

}  // namespace

void refuse_unsupported_keys(const Config& config) {
  refuse_draft_model(config);
  const Facts facts = facts_of(config);
  refuse_positions(config, facts);
  const auto judge = [&](const std::string& key, HasNoEffect inert, std::string_view what) {
    const auto inside = config.keys_inside(key);
    const std::string json = config.json(key);
    const bool nothing = inside.empty() ? inert(json, facts) : quantises_nothing(config, key);
    if (!nothing && inside.empty()) fail(Exit::usage, "{} is {}: {}", config.describe(key), json, what);
    if (!nothing) {
      const std::string setting = main_key(config, key);
      fail(Exit::usage, "{} is {}: {}", config.describe(setting), config.json(setting), what);
    }
    config.ignore({key});
    for (const std::string& part : inside) config.ignore({fmt::format("{}.{}", key, part)});
  };
  for (const std::string& key : config.root_keys()) {
    const auto* const known =
        std::ranges::find_if(kForeign, [&](const UnsupportedKeys& row) { return has_word(row.keys, key); });
    if (known != std::end(kForeign)) {
      const bool by_attention_bias = facts.llama && has_word("use_qkv_bias qkv_bias add_qkv_bias", key) &&
                                     config.json("attention_bias") == config.json(key);
      judge(key, by_attention_bias ? kQkvBiasOfLlama : known->inert, known->what);
      continue;
    }
    for (const UnsupportedWord& word : kForeignWords) {
      const auto at = key.find(word.word);
      if (at == std::string::npos || (word.begins && at != 0)) continue;
      judge(key, kOff, word.what);
      break;
    }
  }
}

}  // namespace strata::models
