#pragma once
#include <cstddef>
#include <vector>

#include "models/files/config.h"
#include "models/layers/rotary_table.h"

namespace strata::models {

// The settings in a config.json for a model of the Llama family, as transformers interprets them: an absent key has the
// family's default. windows: for each layer, the number of tokens that a position sees, itself included; 0: all before
// it.
struct LlamaShape {
  std::size_t hidden, heads, kv_heads, head_dim, inner, layers, vocabulary, positions;
  std::vector<std::size_t> windows;
  float eps, deviation, attention_dropout;
  RotaryTable rotary;
  bool qkv_bias, output_bias, mlp_bias, qk_norm, tied;

  std::size_t query_width() const { return heads * head_dim; }
  std::size_t key_width() const { return kv_heads * head_dim; }
};

// Throws Error{usage} naming the key if a value is not supported, for sequences of `seq` tokens.
LlamaShape read_llama_shape(const Config& config, std::size_t seq);

}  // namespace strata::models
