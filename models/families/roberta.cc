// RoBERTa (Liu et al. 2019) and XLM-RoBERTa (Conneau et al. 2019) as Hugging Face stores them: BERT's encoder, but
// positions start after the padding row and skip the padding token, and the head has other names.
#include <string>
#include <utility>

#include "base/error.h"
#include "models/families/bert.h"
#include "models/families/families.h"

namespace strata::models {

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
  s.decoder_bias = s.tied ? "lm_head.bias" : "lm_head.decoder.bias";  // as in bert.cc
  for (const char* name : {"lm_head.bias", "lm_head.decoder.bias"}) s.ignored_suffixes.emplace_back(name);
  const std::int64_t padding = config.int_or("pad_token_id", 1);
  if (padding < 0 || static_cast<std::size_t>(padding) + 1 >= s.position_rows)
    fail(Exit::usage, "{} is {}: positions start after it, and max_position_embeddings={} leaves none",
         config.describe("pad_token_id"), padding, s.position_rows);
  s.padding = static_cast<std::uint32_t>(padding);
  return make_encoder(std::move(s), config, run);
}

}  // namespace strata::models
