// BERT (Devlin et al. 2018) as Hugging Face stores it: learned positions and token types, LayerNorm after the
// embeddings and after every residual sum, attention in both directions, GELU (erf), biases. RoBERTa (Liu et al. 2019)
// and XLM-RoBERTa (Conneau et al. 2019) have the same encoder, but positions start after the padding row and skip the
// padding token, and the head has other names.
#include <string>
#include <utility>

#include "base/error.h"
#include "models/families/encoder.h"
#include "models/families/families.h"

namespace strata::models {
namespace {

// Reads the keys that BERT and RoBERTa share, and names the encoder's tensors. `words`: the default of vocab_size.
EncoderSpec read_bert(const Config& config, std::size_t words) {
  EncoderSpec s = read_encoder(config,
                               {.hidden = "hidden_size",
                                .heads = "num_attention_heads",
                                .layers = "num_hidden_layers",
                                .inner = "intermediate_size",
                                .activation = "hidden_act"},
                               {768, 12, 12, 3072, words});
  EncoderBlockSpec& b = s.blocks;
  b.eps = static_cast<float>(positive_or(config, "layer_norm_eps", 1e-12, Zero::allowed));
  b.attention_dropout = dropout_probability(config, "attention_probs_dropout_prob", 0.1);
  b.projection_dropout = b.down_dropout = s.embedding_dropout = dropout_probability(config, "hidden_dropout_prob", 0.1);
  s.type_rows = size_or_default(config, "type_vocab_size", 2);
  require_bool(config, "is_decoder", false, false);
  // Keys of other heads, and of the first BERT checkpoints.
  const float classifier_dropout =
      dropout_probability(config, "classifier_dropout", static_cast<double>(s.embedding_dropout));
  s.sequence_dropout = s.token_dropout = classifier_dropout;
  config.ignore({"directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
                 "pooler_size_per_head", "pooler_type"});
  return s;
}

void name_bert(EncoderSpec& s, const std::string& prefix) {
  name_embeddings(s, prefix);
  s.blocks.names = {.layers = prefix + "encoder.layer.",
                    .query = "attention.self.query",
                    .key = "attention.self.key",
                    .value = "attention.self.value",
                    .projection = "attention.output.dense",
                    .attention_norm = "attention.output.LayerNorm",
                    .up = "intermediate.dense",
                    .down = "output.dense",
                    .norm = "output.LayerNorm"};
  s.ignored_suffixes = {"embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight",
                        "pooler.dense.bias"};
}

}  // namespace

std::unique_ptr<Model> make_bert(const Config& config, const RunShape& run) {
  EncoderSpec s = read_bert(config, 30522);
  s.family = "bert";
  name_bert(s, "bert.");
  s.transform = "cls.predictions.transform.dense";
  s.transform_norm = "cls.predictions.transform.LayerNorm";
  s.dense = "bert.pooler.dense";
  s.sequence_scores = s.token_scores = "classifier";
  s.decoder = "cls.predictions.decoder";
  // If tied, both names are one tensor, stored under the older one (transformers 5). Otherwise the decoder has its own,
  // and files also hold the older one, which no longer has an effect.
  s.decoder_bias = s.tied ? "cls.predictions.bias" : "cls.predictions.decoder.bias";
  if (!s.tied) s.copy_of_bias = "cls.predictions.bias";
  for (const char* name : {"cls.predictions.bias", "cls.predictions.decoder.bias", "cls.seq_relationship.weight",
                           "cls.seq_relationship.bias"})
    s.ignored_suffixes.emplace_back(name);
  return make_encoder(std::move(s), config, run);
}

std::unique_ptr<Model> make_roberta(const Config& config, const RunShape& run) {
  const std::string family = config.require_text("model_type");
  EncoderSpec s = read_bert(config, family == "roberta" ? 50265 : 30522);
  s.family = family;
  name_bert(s, "roberta.");
  s.transform = "lm_head.dense";
  s.transform_norm = "lm_head.layer_norm";
  s.dense = "classifier.dense";
  s.sequence_scores = "classifier.out_proj";
  s.token_scores = "classifier";
  s.dropout_before_dense = s.sequence_dropout;
  s.decoder = "lm_head.decoder";
  s.decoder_bias = s.tied ? "lm_head.bias" : "lm_head.decoder.bias";  // as BERT's
  if (!s.tied) s.copy_of_bias = "lm_head.bias";
  for (const char* name : {"lm_head.bias", "lm_head.decoder.bias"}) s.ignored_suffixes.emplace_back(name);
  const std::int64_t padding = config.int_or("pad_token_id", 1);
  if (padding < 0 || static_cast<std::size_t>(padding) + 1 >= s.position_rows)
    fail(Exit::usage, "{} is {}: positions start after it, and max_position_embeddings={} leaves none",
         config.describe("pad_token_id"), padding, s.position_rows);
  s.padding = static_cast<std::uint32_t>(padding);
  return make_encoder(std::move(s), config, run);
}

}  // namespace strata::models
