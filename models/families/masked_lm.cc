#include "models/families/masked_lm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "models/layers/embedding.h"
#include "models/layers/embedding_norm.h"
#include "models/layers/head.h"
#include "models/layers/prediction_transform.h"

namespace strata::models {
namespace {

class MaskedLm final : public Model {
 public:
  MaskedLm(const MaskedLmSpec& s, const RunShape& run) {
    const EncoderBlockSpec& b = s.blocks;
    family = s.family;
    vocabulary = s.vocabulary;
    hidden = b.hidden;
    max_positions = s.position_rows - s.first_position;
    heads = b.heads;
    head_dim = b.hidden / b.heads;
    ignored_suffixes = s.ignored_suffixes;
    optional_prefix = s.prefix;
    if (s.type_rows > 0) constants_bytes = run.tokens() * sizeof(std::uint32_t);

    const Init normal{0, b.deviation};
    units.push_back(make_embedding({.table_name = s.words + ".weight",
                                    .position_name = s.positions + ".weight",
                                    .vocabulary = s.vocabulary,
                                    .positions = s.position_rows,
                                    .hidden = b.hidden,
                                    .init = normal,
                                    .first_position = s.first_position,
                                    .type_name = s.types + ".weight",
                                    .types = s.type_rows},
                                   run));
    units.push_back(make_embedding_norm({s.embedding_norm, b.hidden, b.eps, s.embedding_dropout}, run));
    add_encoder_blocks(units, b, run);
    units.push_back(make_prediction_transform({s.transform, b.hidden, b.deviation}, run));
    HeadSpec head{.gain_name = s.transform_norm + ".weight",
                  .bias_name = s.transform_norm + ".bias",
                  .weight_name = s.decoder + ".weight",
                  .vocabulary = s.vocabulary,
                  .hidden = b.hidden,
                  .eps = b.eps,
                  .init = normal,
                  .logit_bias_name = s.decoder_bias};
    if (s.tied) head.tied = share(head.weight_name, units, 0, 0);
    units.push_back(make_head(head, run));
  }

  // The token types: all are 0.
  void fill_constants(std::byte* constants) const override {
    if (constants_bytes > 0) std::memset(constants, 0, constants_bytes);
  }
};

}  // namespace

std::unique_ptr<Model> make_masked_lm(MaskedLmSpec spec, const RunShape& run) {
  EncoderBlockSpec& b = spec.blocks;
  if (!run.training) spec.embedding_dropout = b.attention_dropout = b.projection_dropout = b.down_dropout = 0;
  return std::make_unique<MaskedLm>(spec, run);
}

void require_masked_lm(const Config& config, const RunShape& run, std::string_view architecture) {
  const std::vector<std::string> named = config.texts("architectures");
  if (!named.empty() && std::find(named.begin(), named.end(), architecture) == named.end())
    fail(Exit::usage, "{} names {}, whose head is not built yet; {} is", config.describe("architectures"), named[0],
         architecture);
  if (run.cache > 0)
    fail(Exit::usage, "{} is \"{}\", an encoder: it does not generate; gpt2, llama, mistral, qwen2 and qwen3 do",
         config.describe("model_type"), config.require_text("model_type"));
}

}  // namespace strata::models
