#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/blocks/split_block.h"
#include "models/layers/norm_part.h"
#include "models/model.h"

namespace strata::models {

// The activation between an MLP's two products: GELU (tanh) of the first product; or SiLU or GELU (erf) of its first
// half, the gate, times its second half.
enum class MlpKind : std::uint8_t { gelu_tanh, gelu_erf, swiglu, geglu };

// A pre-norm transformer block: y = h + MLP(norm(h)), with h = x + attention(norm(x)). Names are the tensors' names
// without "weight" and "bias".
struct PreNormBlockSpec {
  // The settings that may differ between blocks.
  struct Layer {
    std::size_t window = 0;             // see AttentionSpec
    std::optional<std::size_t> angles;  // the start of its rotary positions' cos and sin in the constants
    bool has_norm = true;               // a norm before its attention

    auto operator<=>(const Layer&) const = default;
  };

  std::string prefix;  // "model.layers.", followed by the number of the layer and a dot
  std::string attention_norm;
  JoinedLayers qkv;
  std::string q_norm, k_norm;  // RMSNorm of each head, or empty
  JoinedLayers projection;
  std::string mlp_norm;
  JoinedLayers up, down;  // up: after the gate, if there is one

  std::size_t hidden, heads, kv_heads, head_dim, inner;
  NormKind norm;
  float eps;
  MlpKind mlp;
  std::vector<Layer> layers;
  bool causal = true;
  bool input_major = false;       // see Linear::Spec
  bool mlp_norm_with_up = false;  // the MLP's norm is in the same part as `up`, otherwise as `projection`
  float attention_dropout = 0, residual_dropout = 0;
  std::size_t positions = 0;  // the constants' fp32 cos and sin are [positions, head_dim / 2] each

  std::size_t query_width() const { return heads * head_dim; }
};

// Adds a unit for each of the spec's layers.
void add_pre_norm_blocks(std::vector<std::unique_ptr<Unit>>& units, const PreNormBlockSpec& spec, const RunShape& run);

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
// follows each residual sum, the activation is GELU (erf), and all layers have biases.
void add_encoder_blocks(std::vector<std::unique_ptr<Unit>>& units, const EncoderBlockSpec& spec, const RunShape& run);

}  // namespace strata::models
