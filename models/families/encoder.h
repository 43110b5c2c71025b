#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/ops/activation.h"
#include "models/files/config.h"
#include "models/layers/blocks/blocks.h"
#include "models/model.h"

namespace strata::models {

// An encoder and the heads that it may end in, as its family's config describes them. Layer names do not include
// ".weight" and ".bias".
struct EncoderSpec {
  std::string family;
  // The prefix of its tensors in the checkpoint ("bert."). A bare encoder's tensors do not have it.
  std::string prefix;
  std::string words, positions, types, embedding_norm;
  std::string transform, transform_norm, decoder, decoder_bias;  // for masked_lm; the last is the full name
  std::string copy_of_bias;  // the full name of another tensor with the bias's values in files; empty: none
  // For classifiers: the dense layer before the scores (of sequences), the layer of the scores, and their dropout.
  std::string dense, sequence_scores, token_scores;
  device::Activation activation = device::Activation::tanh;
  float dropout_before_dense = 0, sequence_dropout = 0, token_dropout = 0;
  std::vector<std::string> ignored_suffixes;

  std::size_t vocabulary, position_rows, type_rows;
  // The padding token, which never has a position. The positions of all other tokens start after the row with its
  // number.
  std::optional<std::uint32_t> padding;
  EncoderBlockSpec blocks;
  float embedding_dropout;
  bool tied;
};

// read_encoder() reads the settings that these families share but store under different keys: shape, sizes of the
// tables, initialisation, and whether the decoder is tied to the embedding. Throws an Error{usage} with the key if the
// heads do not divide the width, or if the activation is not GELU (erf).
struct EncoderKeys {
  std::string hidden, heads, layers, inner, activation;
};
// Sizes that the config lacks get the value `otherwise`.
struct EncoderSizes {
  std::size_t hidden, heads, layers, inner, words;
};
EncoderSpec read_encoder(const Config& config, const EncoderKeys& keys, const EncoderSizes& otherwise);

// The names of the embeddings' tensors after the model's prefix.
void name_embeddings(EncoderSpec& spec, const std::string& prefix);

// Token, position and type embeddings, their norm, the blocks, and the head for run.objective. Throws Error{usage} if
// encoders have no such head, or if the run generates.
std::unique_ptr<Model> make_encoder(EncoderSpec spec, const Config& config, const RunShape& run);

}  // namespace strata::models
