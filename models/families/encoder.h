#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/files/config.h"
#include "models/layers/encoder_block.h"
#include "models/layers/heads/class_head.h"
#include "models/model.h"

namespace strata::models {

// An encoder and the heads that it may end in, as its family's config describes them. Names of layers go before
// ".weight" and ".bias".
struct EncoderSpec {
  std::string family;
  // Its tensors in the checkpoint begin so ("bert."); those of a bare encoder do not.
  std::string prefix;
  std::string words, positions, types, embedding_norm;
  std::string transform, transform_norm, decoder, decoder_bias;  // masked_lm's; the last is the whole name
  // Of classifiers: a dense layer before the scores (of sequences), and that of the scores; of their dropout.
  std::string dense, sequence_scores, token_scores;
  Squash squash = Squash::tanh;
  float dropout_before_dense = 0, sequence_dropout = 0, token_dropout = 0;
  std::vector<std::string> ignored_suffixes;

  std::size_t vocabulary, position_rows, type_rows;
  // A token that has no position, whatever its place in a text; those of the others start after the row of that number.
  std::optional<std::uint32_t> padding;
  EncoderBlockSpec blocks;
  float embedding_dropout;
  bool tied;
};

// What all of these families say alike, under keys of their own: shape, sizes of the tables, how weights start and
// whether the decoder is the embedding's table. Throws Error{usage} naming the key if the heads do not divide the
// width, or if the activation is another than GELU (erf).
struct EncoderKeys {
  std::string hidden, heads, layers, inner, activation;
};
// Sizes that the config does not have are `otherwise`.
struct EncoderSizes {
  std::size_t hidden, heads, layers, inner, words;
};
EncoderSpec read_encoder(const Config& config, const EncoderKeys& keys, const EncoderSizes& otherwise);

// What the embeddings' tensors are called behind the model's prefix.
void name_embeddings(EncoderSpec& spec, const std::string& prefix);

// Token, position and type embeddings, their norm, the blocks, and the head that run.objective asks for. Throws
// Error{usage} if encoders have no such head, or if the run is to generate.
std::unique_ptr<Model> make_encoder(EncoderSpec spec, const Config& config, const RunShape& run);

}  // namespace strata::models
