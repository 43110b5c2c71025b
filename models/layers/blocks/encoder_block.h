#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"

namespace strata::models {

// The names of a block's tensors, each without ".weight" or ".bias".
struct EncoderBlockNames {
  std::string layers;  // "bert.encoder.layer.", followed by the number of the layer and a dot
  std::string query, key, value, projection, attention_norm, up, down, norm;
};

struct EncoderBlockSpec {
  EncoderBlockNames names;
  std::size_t layers, hidden, heads, inner;
  float eps, deviation;
  float attention_dropout, projection_dropout, down_dropout;
};

// Encoder blocks as in "Attention Is All You Need" and BERT: every row attends to its complete document, LayerNorm
// follows each residual sum, GELU (erf), biases everywhere.
void add_encoder_blocks(std::vector<std::unique_ptr<Unit>>& units, const EncoderBlockSpec& spec, const RunShape& run);

}  // namespace strata::models
