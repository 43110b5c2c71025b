// ModernBERT (Warner et al. 2024) as Hugging Face stores it: rotary positions, every third block attends to the whole
// document and the others to a window, LayerNorm without biases before attention and MLP, GeGLU.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/classes.h"
#include "models/families/families.h"
#include "models/layers/embedding.h"
#include "models/layers/embedding_norm.h"
#include "models/layers/heads/class_head.h"
#include "models/layers/heads/head.h"
#include "models/layers/modern_block.h"
#include "models/layers/rotary_table.h"

namespace strata::models {
namespace {

struct Shape {
  ModernBlockSpec blocks;
  std::size_t vocabulary, positions;
  RotaryTable global, local;
  float embedding_dropout, class_dropout;
  bool tied, decoder_bias;
  bool mean;  // a document is classified by the mean of its rows, not by its first
};

// By layer: whether it attends to the whole document.
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
  ModernBlockSpec& b = s.blocks;
  b.layers = "model.layers.";
  b.hidden = size_or_default(config, "hidden_size", 768);
  b.heads = size_or_default(config, "num_attention_heads", 12);
  b.layers_count = size_or_default(config, "num_hidden_layers", 22, kMostLayers);
  b.inner = size_or_default(config, "intermediate_size", 1152);
  b.eps = static_cast<float>(positive_or(config, "norm_eps", 1e-5, Zero::allowed));
  b.deviation = static_cast<float>(positive_or(config, "initializer_range", 0.02, Zero::allowed));
  b.window = size_or(config, "local_attention", 128);
  b.global = read_layers(config, b.layers_count);
  s.vocabulary = size_or_default(config, "vocab_size", 50368, kMostWords);
  s.positions = size_or_default(config, "max_position_embeddings", 8192, kMostPositions);
  if (b.hidden % (2 * b.heads) != 0)
    fail(Exit::usage, "config key num_attention_heads={} does not divide hidden_size={} into heads of an even size",
         b.heads, b.hidden);
  const std::size_t head_dim = b.hidden / b.heads;
  s.global = read_rotary_table(config, head_dim, s.positions, "full_attention", "global_rope_theta", 160000);
  s.local = read_rotary_table(config, head_dim, s.positions, "sliding_attention", "local_rope_theta", 10000);
  s.embedding_dropout = dropout_probability(config, "embedding_dropout", 0);
  s.tied = config.bool_or("tie_word_embeddings", true);
  s.decoder_bias = config.bool_or("decoder_bias", true);
  for (const char* key : {"attention_bias", "mlp_bias", "norm_bias", "classifier_bias"})
    require_bool(config, key, false, false);
  for (const char* key : {"attention_dropout", "mlp_dropout"})
    if (dropout_probability(config, key, 0) > 0)
      fail(Exit::usage, "{} is above 0, which is not built yet; only 0 is", config.describe(key));
  require_gelu(config, "hidden_activation");
  require_gelu(config, "classifier_activation");
  s.class_dropout = dropout_probability(config, "classifier_dropout", 0);
  require_one_of(config, "classifier_pooling", {"cls", "mean"}, "cls");
  s.mean = config.text_or("classifier_pooling", "cls") == "mean";
  // Of how it is trained or run there.
  config.ignore({"cls_token_id", "deterministic_flash_attn", "initializer_cutoff_factor", "layer_norm_eps",
                 "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction",
                 "gradient_checkpointing"});
  return s;
}

class ModernBert final : public Model {
 public:
  ModernBert(Shape shape, const Config& config, const RunShape& run) : shape_(std::move(shape)) {
    Shape& s = shape_;
    ModernBlockSpec& b = s.blocks;
    family = "modernbert";
    vocabulary = s.vocabulary;
    hidden = b.hidden;
    max_positions = s.positions;
    heads = b.heads;
    head_dim = b.hidden / b.heads;
    bidirectional = true;
    ignored_suffixes = {"rotary_emb.inv_freq"};
    optional_prefix = "model.";
    // Positions past the sequence are never looked up.
    b.positions = std::min(s.positions, run.seq);
    b.local_angles = s.global.bytes(b.positions);
    constants_bytes = b.local_angles + s.local.bytes(b.positions);

    const Init normal{0, b.deviation};
    units.push_back(
        make_embedding({"model.embeddings.tok_embeddings.weight", "", s.vocabulary, 0, b.hidden, normal, 0}, run));
    units.push_back(make_embedding_norm(
        {"model.embeddings.norm", b.hidden, b.eps, run.training ? s.embedding_dropout : 0, false}, run));
    add_modern_blocks(units, b, run);
    if (*run.objective == Objective::masked_lm)
      add_words(run);
    else
      add_classes(read_classes(config, *run.objective), run);
    for (const Parameter& parameter : units.back()->parameters())
      if (!parameter.name.starts_with(optional_prefix)) drawn_if_missing.push_back(parameter.name);
  }

  void fill_constants(std::byte* constants) const override {
    const ModernBlockSpec& b = shape_.blocks;
    shape_.global.fill(b.positions, constants + b.global_angles);
    shape_.local.fill(b.positions, constants + b.local_angles);
  }

 private:
  void add_words(const RunShape& run) {
    const Shape& s = shape_;
    const ModernBlockSpec& b = s.blocks;
    HeadSpec head{.gain_name = "head.norm.weight",
                  .weight_name = "decoder.weight",
                  .vocabulary = s.vocabulary,
                  .hidden = b.hidden,
                  .eps = b.eps,
                  .init = {0, b.deviation},
                  .logit_bias_name = s.decoder_bias ? "decoder.bias" : "",
                  .transform = PredictionTransformSpec{"head.dense", b.deviation, false, "model.final_norm.weight"},
                  .centred = true};
    if (s.tied) head.tied = share(head.weight_name, units, 0, 0);
    units.push_back(make_head(head, run));
    ignored_suffixes.insert(ignored_suffixes.end(), {"classifier.weight", "classifier.bias"});
  }
  // Of documents, or of every row.
  void add_classes(const Classes& classes, const RunShape& run) {
    const Shape& s = shape_;
    const ModernBlockSpec& b = s.blocks;
    const bool mean = s.mean && *run.objective == Objective::sequence_classification;
    units.push_back(make_class_head({.hidden = b.hidden,
                                     .classes = classes.names.size(),
                                     .target = classes.target,
                                     .init = {0, b.deviation},
                                     .norm_gain = "model.final_norm.weight",
                                     .centred = true,
                                     .eps = b.eps,
                                     .mean_heads = mean ? b.heads : 0,
                                     .dense = "head.dense",
                                     .squash = Squash::gelu,
                                     .dense_biased = false,
                                     .dense_norm = "head.norm",
                                     .scores = "classifier",
                                     .dropout_behind = run.training ? s.class_dropout : 0},
                                    run));
    ignored_suffixes.insert(ignored_suffixes.end(), {"decoder.weight", "decoder.bias"});
  }

  Shape shape_;
};

}  // namespace

std::unique_ptr<Model> make_modernbert(const Config& config, const RunShape& run) {
  if (run.cache > 0)
    fail(Exit::usage,
         "{} is \"modernbert\", an encoder: it does not generate; gpt2, llama, mistral, qwen2 and qwen3 do",
         config.describe("model_type"));
  require_objective(run, "modernbert",
                    {Objective::masked_lm, Objective::sequence_classification, Objective::token_classification});
  return std::make_unique<ModernBert>(read_shape(config), config, run);
}

}  // namespace strata::models
