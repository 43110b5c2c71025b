// ModernBERT (Warner et al. 2024) as Hugging Face stores it: rotary positions; every third block attends to the whole
// document, and the others to a window; LayerNorm without biases before attention and MLP; GeGLU.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/classes.h"
#include "models/families/families.h"
#include "models/layers/blocks/blocks.h"
#include "models/layers/embedding.h"
#include "models/layers/heads/heads.h"
#include "models/layers/rotary_table.h"

namespace strata::models {
namespace {

struct Shape {
  std::size_t hidden, heads, inner, vocabulary, positions;
  std::vector<bool> global;  // for each layer: attention sees the whole document
  std::size_t window;        // for the other layers: keys at most window / 2 rows away
  float eps, deviation;
  RotaryTable global_table, local_table;
  float embedding_dropout, class_dropout;
  bool tied, decoder_bias;
  bool mean;  // a document is classified by the mean of its rows, not by its first row
};

std::vector<bool> read_layers(const Config& config, std::size_t layers) {
  const std::size_t every = size_or(config, "global_attn_every_n_layers", 3);
  const std::vector<bool> sliding = sliding_layers(config, layers);
  std::vector<bool> global(layers);
  for (std::size_t layer = 0; layer < layers; ++layer)
    global[layer] = sliding.empty() ? layer % every == 0 : !sliding[layer];
  return global;
}

Shape read_shape(const Config& config) {
  Shape s{};
  s.hidden = size_or_default(config, "hidden_size", 768);
  s.heads = size_or_default(config, "num_attention_heads", 12);
  s.global = read_layers(config, size_or_default(config, "num_hidden_layers", 22, kMaxLayers));
  s.inner = size_or_default(config, "intermediate_size", 1152);
  s.eps = static_cast<float>(positive_or(config, "norm_eps", 1e-5, Zero::allowed));
  s.deviation = static_cast<float>(positive_or(config, "initializer_range", 0.02, Zero::allowed));
  s.window = size_or(config, "local_attention", 128);
  if (config.has("sliding_window")) s.window = 2 * size_of_key(config, "sliding_window", kMaxPositions);
  s.vocabulary = size_or_default(config, "vocab_size", 50368, kMaxWords);
  s.positions = size_or_default(config, "max_position_embeddings", 8192, kMaxPositions);
  if (s.hidden % (2 * s.heads) != 0)
    fail(Exit::usage, "config key num_attention_heads={} does not divide hidden_size={} into heads of an even size",
         s.heads, s.hidden);
  const std::size_t head_dim = s.hidden / s.heads;
  s.global_table = read_rotary_table(config, head_dim, s.positions, "full_attention", "global_rope_theta", 160000);
  s.local_table = read_rotary_table(config, head_dim, s.positions, "sliding_attention", "local_rope_theta", 10000);
  s.embedding_dropout = dropout_probability(config, "embedding_dropout", 0);
  s.tied = config.bool_or("tie_word_embeddings", true);
  s.decoder_bias = config.bool_or("decoder_bias", true);
  for (const char* key : {"attention_bias", "mlp_bias", "norm_bias", "classifier_bias"})
    require_bool(config, key, false, false);
  require_gelu(config, "hidden_activation");
  require_gelu(config, "classifier_activation");
  s.class_dropout = dropout_probability(config, "classifier_dropout", 0);
  require_one_of(config, "classifier_pooling", {"cls", "mean"}, "cls");
  s.mean = config.text_or("classifier_pooling", "cls") == "mean";
  // Keys that only affect training or running the model in transformers.
  config.ignore({"cls_token_id", "deterministic_flash_attn", "initializer_cutoff_factor", "layer_norm_eps",
                 "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction",
                 "gradient_checkpointing"});
  return s;
}

// The first block has no norm before its attention, because the embedding's norm takes its place.
PreNormBlockSpec blocks_of(const Shape& s, std::size_t positions) {
  const Init normal{0, s.deviation};
  PreNormBlockSpec spec{.prefix = "model.layers.",
                        .attention_norm = "attn_norm",
                        .qkv = {{{"attn.Wqkv", 3 * s.hidden, 3}}, false, normal},
                        .projection = {{{"attn.Wo", s.hidden}}, false, normal},
                        .mlp_norm = "mlp_norm",
                        .up = {{{"mlp.Wi", 2 * s.inner, 2}}, false, normal},
                        .down = {{{"mlp.Wo", s.hidden}}, false, normal},
                        .hidden = s.hidden,
                        .heads = s.heads,
                        .kv_heads = s.heads,
                        .head_dim = s.hidden / s.heads,
                        .inner = s.inner,
                        .norm = NormKind::layer_without_bias,
                        .eps = s.eps,
                        .mlp = MlpKind::geglu,
                        .causal = false,
                        .mlp_norm_with_up = true,
                        .positions = positions};
  const std::size_t global_angles = 0, local_angles = s.global_table.bytes(positions);
  for (std::size_t layer = 0; layer < s.global.size(); ++layer)
    spec.layers.push_back({.window = s.global[layer] ? 0 : s.window,
                           .angles = s.global[layer] ? global_angles : local_angles,
                           .has_norm = layer > 0});
  return spec;
}

class ModernBert final : public Model {
 public:
  ModernBert(Shape shape, const Config& config, const RunShape& run) : shape_(std::move(shape)) {
    const Shape& s = shape_;
    family = "modernbert";
    vocabulary = s.vocabulary;
    hidden = s.hidden;
    max_positions = s.positions;
    heads = s.heads;
    head_dim = s.hidden / s.heads;
    bidirectional = true;
    ignored_suffixes = {"rotary_emb.inv_freq"};
    optional_prefix = "model.";
    // Positions beyond the sequence are never looked up.
    positions_ = std::min(s.positions, run.seq);
    constants_bytes = s.global_table.bytes(positions_) + s.local_table.bytes(positions_);

    const Init normal{0, s.deviation};
    units.push_back(
        make_embedding({"model.embeddings.tok_embeddings.weight", "", s.vocabulary, 0, s.hidden, normal, 0}, run));
    units.push_back(make_embedding_norm(
        {"model.embeddings.norm", s.hidden, s.eps, run.training ? s.embedding_dropout : 0, false}, run));
    add_pre_norm_blocks(units, blocks_of(s, positions_), run);
    if (*run.objective == Objective::masked_lm)
      add_words(run);
    else
      add_classes(read_classes(config, *run.objective), run);
    for (const Parameter& parameter : units.back()->parameters())
      if (!parameter.name.starts_with(optional_prefix)) random_if_missing.push_back(parameter.name);
  }

  void fill_constants(std::byte* constants) const override {
    shape_.global_table.fill(positions_, constants);
    shape_.local_table.fill(positions_, constants + shape_.global_table.bytes(positions_));
  }

 private:
  void add_words(const RunShape& run) {
    const Shape& s = shape_;
    HeadSpec head{.gain_name = "head.norm.weight",
                  .weight_name = "decoder.weight",
                  .vocabulary = s.vocabulary,
                  .hidden = s.hidden,
                  .eps = s.eps,
                  .init = {0, s.deviation},
                  .logit_bias_name = s.decoder_bias ? "decoder.bias" : "",
                  .transform = PredictionTransformSpec{"head.dense", s.deviation, false, "model.final_norm.weight"},
                  .centred = true};
    if (s.tied) head.tied = share(head.weight_name, units, 0, 0);
    units.push_back(make_head(head, run));
    ignored_suffixes.insert(ignored_suffixes.end(), {"classifier.weight", "classifier.bias"});
  }
  // Classes of documents, or of every row.
  void add_classes(const Classes& classes, const RunShape& run) {
    const Shape& s = shape_;
    const bool mean = s.mean && *run.objective == Objective::sequence_classification;
    units.push_back(make_class_head({.hidden = s.hidden,
                                     .classes = classes.names.size(),
                                     .target = classes.target,
                                     .init = {0, s.deviation},
                                     .norm_gain = "model.final_norm.weight",
                                     .centred = true,
                                     .eps = s.eps,
                                     .mean_heads = mean ? s.heads : 0,
                                     .dense = "head.dense",
                                     .activation = device::Activation::gelu_erf,
                                     .dense_biased = false,
                                     .dense_norm = "head.norm",
                                     .scores = "classifier",
                                     .dropout_after = run.training ? s.class_dropout : 0},
                                    run));
    ignored_suffixes.insert(ignored_suffixes.end(), {"decoder.weight", "decoder.bias"});
  }

  Shape shape_;
  std::size_t positions_;  // per sequence
};

}  // namespace

std::unique_ptr<Model> make_modernbert(const Config& config, const RunShape& run) {
  if (run.cache > 0)
    fail(Exit::usage,
         "{} is \"modernbert\", an encoder: it does not generate; gpt2, llama, mistral, qwen2 and qwen3 do",
         config.describe("model_type"));
  require_objective(run, "modernbert",
                    {Objective::masked_lm, Objective::sequence_classification, Objective::token_classification});
  for (const char* key : {"attention_dropout", "mlp_dropout"})
    if (dropout_probability(config, key, 0) > 0 && run.training)
      fail(Exit::usage, "{} is above 0, which is not supported in training: set model.config.{} = 0",
           config.describe(key), key);
  return std::make_unique<ModernBert>(read_shape(config), config, run);
}

}  // namespace strata::models
