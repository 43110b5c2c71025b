#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <iterator>

#include "base/error.h"
#include "models/files/config.h"

namespace strata::models {
namespace {

struct Gpt2Preset {
  std::string_view name;
  int layers, heads, hidden, vocab;
};
constexpr Gpt2Preset kGpt2[] = {
    {"tiny-gpt2", 4, 4, 128, 512},      {"gpt2-124m", 12, 12, 768, 50304},   {"gpt2-350m", 24, 16, 1024, 50304},
    {"gpt2-774m", 36, 20, 1280, 50304}, {"gpt2-1558m", 48, 25, 1600, 50304},
};

// Llama and Qwen2 differ in the biases of q, k and v, which transformers derives from the model type.
struct LlamaPreset {
  std::string_view name, model_type;
  int layers, heads, kv_heads, hidden, ffn, vocab, positions;
  double rope_theta;
  double rope_factor;  // the factor of Llama 3.x's scaling; 0: none
  double rms_eps;
  bool tied;
};
constexpr LlamaPreset kLlama[] = {
    {"tiny-llama", "llama", 4, 4, 2, 128, 352, 512, 2048, 10000, 0, 1e-5, false},
    {"llama-1b", "llama", 16, 32, 8, 2048, 8192, 128256, 131072, 500000, 32, 1e-5, true},
    {"llama-3b", "llama", 28, 24, 8, 3072, 8192, 128256, 131072, 500000, 32, 1e-5, true},
    {"llama-8b", "llama", 32, 32, 8, 4096, 14336, 128256, 131072, 500000, 8, 1e-5, false},
    {"llama-70b", "llama", 80, 64, 8, 8192, 28672, 128256, 131072, 500000, 8, 1e-5, false},
    {"qwen-1.5b", "qwen2", 28, 12, 2, 1536, 8960, 151936, 131072, 1000000, 0, 1e-6, true},
    {"qwen-7b", "qwen2", 28, 28, 4, 3584, 18944, 152064, 131072, 1000000, 0, 1e-6, false},
    {"qwen-14b", "qwen2", 48, 40, 8, 5120, 13824, 152064, 131072, 1000000, 0, 1e-5, false},
};

// BERT and RoBERTa: trained to fill in masked tokens.
struct EncoderPreset {
  std::string_view name, model_type;
  int layers, heads, hidden, vocab, positions;
};
constexpr EncoderPreset kEncoders[] = {
    {"bert-base", "bert", 12, 12, 768, 30522, 512},
    {"roberta-base", "roberta", 12, 12, 768, 50265, 514},
    {"xlm-roberta-base", "xlm-roberta", 12, 12, 768, 250002, 514},
    {"xlm-roberta-large", "xlm-roberta", 24, 16, 1024, 250002, 514},
};

// ModernBERT's base model, whose MLPs have an unusual width.
constexpr std::string_view kModernBert = "modernbert-base";
constexpr std::string_view kModernBertConfig = R"({
  "architectures": ["ModernBertForMaskedLM"],
  "model_type": "modernbert",
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 50281,
  "classifier_activation": "gelu",
  "classifier_bias": false,
  "decoder_bias": true,
  "embedding_dropout": 0.0,
  "eos_token_id": 50282,
  "global_attn_every_n_layers": 3,
  "global_rope_theta": 160000.0,
  "hidden_activation": "gelu",
  "hidden_size": 768,
  "initializer_range": 0.02,
  "intermediate_size": 1152,
  "local_attention": 128,
  "local_rope_theta": 10000.0,
  "max_position_embeddings": 8192,
  "mlp_bias": false,
  "mlp_dropout": 0.0,
  "norm_bias": false,
  "norm_eps": 1e-05,
  "num_attention_heads": 12,
  "num_hidden_layers": 22,
  "pad_token_id": 50283,
  "tie_word_embeddings": true,
  "vocab_size": 50368
}
)";

std::string json_of(const Gpt2Preset& m) {
  return fmt::format(R"({{
  "architectures": ["GPT2LMHeadModel"],
  "model_type": "gpt2",
  "activation_function": "gelu_new",
  "attn_pdrop": 0.0,
  "embd_pdrop": 0.0,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "n_embd": {},
  "n_head": {},
  "n_inner": null,
  "n_layer": {},
  "n_positions": 1024,
  "resid_pdrop": 0.0,
  "tie_word_embeddings": true,
  "vocab_size": {}
}}
)",
                     m.hidden, m.heads, m.layers, m.vocab);
}

std::string json_of(const LlamaPreset& m) {
  const bool qwen = m.model_type == "qwen2";
  std::string rope = fmt::format(R"("rope_theta": {:.1f}, "rope_type": "default")", m.rope_theta);
  if (m.rope_factor != 0) {
    rope = fmt::format(R"("rope_theta": {:.1f}, "rope_type": "llama3", "factor": {:.1f}, "high_freq_factor": 4.0, )"
                       R"("low_freq_factor": 1.0, "original_max_position_embeddings": 8192)",
                       m.rope_theta, m.rope_factor);
  }
  const std::string_view bias = qwen ? "" : "\n  \"attention_bias\": false,\n  \"mlp_bias\": false,";
  return fmt::format(R"({{
  "architectures": ["{}"],
  "model_type": "{}",{}
  "attention_dropout": 0.0,
  "hidden_act": "silu",
  "hidden_size": {},
  "initializer_range": 0.02,
  "intermediate_size": {},
  "max_position_embeddings": {},
  "num_attention_heads": {},
  "num_hidden_layers": {},
  "num_key_value_heads": {},
  "rms_norm_eps": {},
  "rope_parameters": {{{}}},
  "tie_word_embeddings": {},
  "vocab_size": {}
}}
)",
                     qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM", m.model_type, bias, m.hidden, m.ffn, m.positions,
                     m.heads, m.layers, m.kv_heads, m.rms_eps, rope, m.tied, m.vocab);
}

std::string json_of(const EncoderPreset& m) {
  const bool bert = m.model_type == "bert";
  const std::string_view tokens =
      bert ? "\n  \"pad_token_id\": 0," : "\n  \"bos_token_id\": 0,\n  \"eos_token_id\": 2,\n  \"pad_token_id\": 1,";
  const std::string_view class_of = bert                        ? "BertForMaskedLM"
                                    : m.model_type == "roberta" ? "RobertaForMaskedLM"
                                                                : "XLMRobertaForMaskedLM";
  return fmt::format(R"({{
  "architectures": ["{}"],
  "model_type": "{}",{}
  "attention_probs_dropout_prob": 0.0,
  "hidden_act": "gelu",
  "hidden_dropout_prob": 0.0,
  "hidden_size": {},
  "initializer_range": 0.02,
  "intermediate_size": {},
  "layer_norm_eps": {},
  "max_position_embeddings": {},
  "num_attention_heads": {},
  "num_hidden_layers": {},
  "tie_word_embeddings": true,
  "type_vocab_size": {},
  "vocab_size": {}
}}
)",
                     class_of, m.model_type, tokens, m.hidden, 4 * m.hidden, bert ? "1e-12" : "1e-05", m.positions,
                     m.heads, m.layers, bert ? 2 : 1, m.vocab);
}

// The presets in the order of the documentation: by family and size.
constexpr std::array<std::string_view, 18> kNames = {
    "gpt2-124m",    "gpt2-350m",        "gpt2-774m",         "gpt2-1558m", "llama-1b",  "qwen-1.5b",
    "llama-3b",     "qwen-7b",          "llama-8b",          "qwen-14b",   "llama-70b", "bert-base",
    "roberta-base", "xlm-roberta-base", "xlm-roberta-large", kModernBert,  "tiny-gpt2", "tiny-llama"};
static_assert(kNames.size() == std::size(kGpt2) + std::size(kLlama) + std::size(kEncoders) + 1);

}  // namespace

std::span<const std::string_view> preset_names() {
  return kNames;
}

std::string preset_config(std::string_view name) {
  for (const Gpt2Preset& m : kGpt2)
    if (m.name == name) return json_of(m);
  for (const LlamaPreset& m : kLlama)
    if (m.name == name) return json_of(m);
  for (const EncoderPreset& m : kEncoders)
    if (m.name == name) return json_of(m);
  if (name == kModernBert) return std::string(kModernBertConfig);
  fail(Exit::usage, "model.preset = {}: there is no such preset; the presets are {}", name, fmt::join(kNames, ", "));
}

}  // namespace strata::models
