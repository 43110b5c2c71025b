#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/norm_part.h"
#include "models/model.h"

namespace strata::models {

// What stands between an MLP's two products: GELU (tanh) of the first one's output; or SiLU or GELU (erf) of its first
// half, the gate, times its second half.
enum class MlpKind : std::uint8_t { gelu_tanh, swiglu, geglu };

// A pre-norm transformer block: y = h + MLP(norm(h)), with h = x + attention(norm(x)). Names are those of the tensors,
// without "weight" and "bias".
struct PreNormBlockSpec {
  // Matrices whose outputs lie side by side.
  struct Product {
    struct Matrix {
      std::string name;
      std::size_t out;
    };
    std::vector<Matrix> matrices;
    bool biased;
    Init init;
  };
  // What may differ from block to block.
  struct Layer {
    std::size_t window = 0;             // as AttentionSpec has it
    std::optional<std::size_t> angles;  // where cos and sin of its rotary positions begin in the constants
    bool has_norm = true;               // before its attention

    auto operator<=>(const Layer&) const = default;
  };

  std::string prefix;  // "model.layers.", before the number of the layer and a dot
  std::string attention_norm;
  Product qkv;
  std::string q_norm, k_norm;  // RMSNorm of each head, or empty
  Product projection;
  std::string mlp_norm;
  Product up, down;  // up: after the gate, if there is one

  std::size_t hidden, heads, kv_heads, head_dim, inner;
  NormKind norm;
  float eps;
  MlpKind mlp;
  std::vector<Layer> layers;
  bool causal = true;
  bool input_major = false;       // as Linear::Spec has it
  bool mlp_norm_with_up = false;  // the MLP's norm lies in one part with `up`, else with `projection`
  float attention_dropout = 0, residual_dropout = 0;
  std::size_t positions = 0;  // fp32 cos and sin of the constants are [positions, head_dim / 2] each

  std::size_t query_width() const { return heads * head_dim; }
  std::size_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// A unit for each of the spec's layers.
void add_pre_norm_blocks(std::vector<std::unique_ptr<Unit>>& units, const PreNormBlockSpec& spec, const RunShape& run);

}  // namespace strata::models
