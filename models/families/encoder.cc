#include "models/families/encoder.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "models/classes.h"
#include "models/families/families.h"
#include "models/layers/embedding.h"
#include "models/layers/heads/heads.h"

namespace strata::models {
namespace {

using Units = std::vector<std::unique_ptr<Unit>>;

// A transform, a norm, and a projection to the vocabulary that may be tied to the embedding (Devlin et al. 2018).
void add_masked_lm(Units& units, const EncoderSpec& s, const Classes&, const RunShape& run) {
  const EncoderBlockSpec& b = s.blocks;
  HeadSpec head{.gain_name = s.transform_norm + ".weight",
                .bias_name = s.transform_norm + ".bias",
                .weight_name = s.decoder + ".weight",
                .vocabulary = s.vocabulary,
                .hidden = b.hidden,
                .eps = b.eps,
                .init = {0, b.deviation},
                .logit_bias_name = s.decoder_bias,
                .transform = PredictionTransformSpec{s.transform, b.deviation}};
  if (s.tied) head.tied = share(head.weight_name, units, 0, 0);
  units.push_back(make_head(head, run));
}

// Classifies the first token of a text, through a dense layer.
void add_sequence_classes(Units& units, const EncoderSpec& s, const Classes& classes, const RunShape& run) {
  units.push_back(make_class_head({.hidden = s.blocks.hidden,
                                   .classes = classes.names.size(),
                                   .target = classes.target,
                                   .init = {0, s.blocks.deviation},
                                   .dense = s.dense,
                                   .activation = s.activation,
                                   .scores = s.sequence_scores,
                                   .dropout_before = s.dropout_before_dense,
                                   .dropout_after = s.sequence_dropout},
                                  run));
}
void add_token_classes(Units& units, const EncoderSpec& s, const Classes& classes, const RunShape& run) {
  units.push_back(make_class_head({.hidden = s.blocks.hidden,
                                   .classes = classes.names.size(),
                                   .target = classes.target,
                                   .init = {0, s.blocks.deviation},
                                   .scores = s.token_scores,
                                   .dropout_after = s.token_dropout},
                                  run));
}

// The head for each objective; null if it is not supported.
using AddHead = void (*)(Units&, const EncoderSpec&, const Classes&, const RunShape&);
AddHead add_head_of(Objective objective) {
  static constexpr std::array<AddHead, 4> kHeads = {nullptr, add_masked_lm, add_sequence_classes, add_token_classes};
  return kHeads[static_cast<std::size_t>(objective)];
}

class Encoder final : public Model {
 public:
  Encoder(const EncoderSpec& s, const Classes& classes, const RunShape& run) {
    const EncoderBlockSpec& b = s.blocks;
    family = s.family;
    vocabulary = s.vocabulary;
    hidden = b.hidden;
    max_positions = s.position_rows - (s.padding ? *s.padding + 1 : 0);
    batch.padding = s.padding;
    heads = b.heads;
    head_dim = b.hidden / b.heads;
    ignored_suffixes = s.ignored_suffixes;
    optional_prefix = s.prefix;
    bidirectional = true;
    batch.types = s.type_rows > 1;
    if (s.type_rows == 1) constants_bytes = run.tokens() * sizeof(std::uint32_t);

    const Init normal{0, b.deviation};
    units.push_back(make_embedding({.table_name = s.words + ".weight",
                                    .position_name = s.positions + ".weight",
                                    .vocabulary = s.vocabulary,
                                    .positions = s.position_rows,
                                    .hidden = b.hidden,
                                    .init = normal,
                                    .first_position = s.padding.value_or(0),
                                    .padded = s.padding.has_value(),
                                    .type_name = s.types + ".weight",
                                    .types = s.type_rows},
                                   run));
    units.push_back(make_embedding_norm({s.embedding_norm, b.hidden, b.eps, s.embedding_dropout}, run));
    add_encoder_blocks(units, b, run);
    add_head_of (*run.objective)(units, s, classes, run);
    for (const Parameter& parameter : units.back()->parameters()) random_if_missing.push_back(parameter.name);
    // Layers of the heads that transformers has for these families.
    ignore_layers(std::array{s.dense, s.sequence_scores, s.token_scores, std::string("qa_outputs")});
    if (*run.objective == Objective::masked_lm) {
      if (!s.copy_of_bias.empty()) copy_in_files = {s.copy_of_bias, s.decoder_bias};
      return;
    }
    ignore_layers(std::array{s.transform, s.transform_norm, s.decoder});
    ignored_suffixes.push_back(s.decoder_bias);
  }

  // With a single token type, its column is constant: zeros.
  void fill_constants(std::byte* constants) const override {
    if (constants_bytes > 0) std::memset(constants, 0, constants_bytes);
  }
};

}  // namespace

EncoderSpec read_encoder(const Config& config, const EncoderKeys& keys, const EncoderSizes& otherwise) {
  EncoderSpec s{};
  EncoderBlockSpec& b = s.blocks;
  b.hidden = size_or_default(config, keys.hidden, otherwise.hidden);
  b.heads = size_or_default(config, keys.heads, otherwise.heads);
  b.layers = size_or_default(config, keys.layers, otherwise.layers, kMaxLayers);
  b.inner = size_or_default(config, keys.inner, otherwise.inner);
  b.deviation = static_cast<float>(positive_or(config, "initializer_range", 0.02, Zero::allowed));
  s.vocabulary = size_or_default(config, "vocab_size", otherwise.words, kMaxWords);
  s.position_rows = size_or_default(config, "max_position_embeddings", 512, kMaxPositions);
  s.tied = config.bool_or("tie_word_embeddings", true);
  if (b.hidden % b.heads != 0)
    fail(Exit::usage, "config key {}={} does not divide {}={}", keys.heads, b.heads, keys.hidden, b.hidden);
  require_gelu(config, keys.activation);
  return s;
}

void name_embeddings(EncoderSpec& s, const std::string& prefix) {
  s.prefix = prefix;
  s.words = prefix + "embeddings.word_embeddings";
  s.positions = prefix + "embeddings.position_embeddings";
  s.types = prefix + "embeddings.token_type_embeddings";
  s.embedding_norm = prefix + "embeddings.LayerNorm";
}

std::unique_ptr<Model> make_encoder(EncoderSpec spec, const Config& config, const RunShape& run) {
  if (run.cache > 0)
    fail(Exit::usage, "{} is \"{}\", an encoder: it does not generate; gpt2, llama, mistral, qwen2 and qwen3 do",
         config.describe("model_type"), spec.family);
  require_objective(run, spec.family,
                    {Objective::masked_lm, Objective::sequence_classification, Objective::token_classification});
  EncoderBlockSpec& b = spec.blocks;
  if (!run.training) spec.embedding_dropout = b.attention_dropout = b.projection_dropout = b.down_dropout = 0;
  if (!run.training) spec.dropout_before_dense = spec.sequence_dropout = spec.token_dropout = 0;
  return std::make_unique<Encoder>(spec, read_classes(config, *run.objective), run);
}

}  // namespace strata::models
