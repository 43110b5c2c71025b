#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/config.h"
#include "models/layers/encoder_block.h"
#include "models/model.h"

namespace strata::models {

// An encoder with a masked language model's head, as its family's config describes it. Names of layers go before
// ".weight" and ".bias".
struct MaskedLmSpec {
  std::string family;
  // Its tensors in the checkpoint begin so ("bert."); those of a bare encoder do not.
  std::string prefix;
  std::string words, positions, types, embedding_norm;
  std::string transform, transform_norm, decoder, decoder_bias;  // the last is the whole name
  std::vector<std::string> ignored_suffixes;

  std::size_t vocabulary, position_rows, first_position, type_rows;
  EncoderBlockSpec blocks;
  float embedding_dropout;
  bool tied;
};

// Token, position and type embeddings, their norm, the blocks, the transform, and a head over the vocabulary that is
// tied to the token embedding. Every row is of token type 0, and goes through the vocabulary whether it has a label or
// not.
std::unique_ptr<Model> make_masked_lm(MaskedLmSpec spec, const RunShape& run);

// Throws Error{usage} if `architectures` names heads, and not this one, or if the run is to generate.
void require_masked_lm(const Config& config, const RunShape& run, std::string_view architecture);

}  // namespace strata::models
