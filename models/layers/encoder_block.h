#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"

namespace strata::models {

// What the tensors of a block are called, each with ".weight" or ".bias" behind it.
struct EncoderBlockNames {
  std::string layers;  // "bert.encoder.layer.", before the number of the layer and a dot
  std::string query, key, value, projection, attention_norm, up, down, norm;
};

struct EncoderBlockSpec {
  EncoderBlockNames names;
  std::size_t layers, hidden, heads, inner;
  float eps, deviation;
  float attention_dropout, projection_dropout, down_dropout;
};

// The blocks of an encoder as in "Attention Is All You Need" and BERT: every row attends to all of its document, and
// LayerNorm comes after each residual sum; GELU (erf), biases everywhere.
void add_encoder_blocks(std::vector<std::unique_ptr<Unit>>& units, const EncoderBlockSpec& spec, const RunShape& run);

}  // namespace strata::models
