// DistilBERT (Sanh et al. 2019) as Hugging Face stores it: BERT's encoder without token types, and without dropout
// after the attention's projection.
#include <fmt/format.h>

#include <utility>

#include "models/families/encoder.h"
#include "models/families/families.h"

namespace strata::models {

std::unique_ptr<Model> make_distilbert(const Config& config, const RunShape& run) {
  EncoderSpec s = read_encoder(config,
                               {.hidden = std::string(own_or_other(config, "dim", "hidden_size")),
                                .heads = std::string(own_or_other(config, "n_heads", "num_attention_heads")),
                                .layers = std::string(own_or_other(config, "n_layers", "num_hidden_layers")),
                                .inner = "hidden_dim",
                                .activation = "activation"},
                               {768, 12, 6, 3072, 30522});
  s.family = "distilbert";
  EncoderBlockSpec& b = s.blocks;
  b.eps = 1e-12f;
  b.attention_dropout = dropout_probability(config, "attention_dropout", 0.1);
  b.down_dropout = s.embedding_dropout = dropout_probability(config, "dropout", 0.1);
  if (config.bool_or("sinusoidal_pos_embds", false) && run.training)
    config.add_note(fmt::format(
        "{} is true: the table of positions is read as stored and trained, as in transformers 5 (transformers 4 "
        "does not train it); in a new model, the table starts at random here",
        config.describe("sinusoidal_pos_embds")));
  s.sequence_dropout = dropout_probability(config, "seq_classif_dropout", 0.2);
  s.token_dropout = s.embedding_dropout;
  config.ignore({"qa_dropout", "tie_weights_"});  // keys of another head and of older versions

  name_embeddings(s, "distilbert.");
  s.blocks.names = {.layers = "distilbert.transformer.layer.",
                    .query = "attention.q_lin",
                    .key = "attention.k_lin",
                    .value = "attention.v_lin",
                    .projection = "attention.out_lin",
                    .attention_norm = "sa_layer_norm",
                    .up = "ffn.lin1",
                    .down = "ffn.lin2",
                    .norm = "output_layer_norm"};
  s.transform = "vocab_transform";
  s.transform_norm = "vocab_layer_norm";
  s.dense = "pre_classifier";
  s.activation = device::Activation::relu;
  s.sequence_scores = s.token_scores = "classifier";
  s.decoder = "vocab_projector";
  s.decoder_bias = "vocab_projector.bias";
  s.ignored_suffixes = {"embeddings.position_ids"};
  return make_encoder(std::move(s), config, run);
}

}  // namespace strata::models
