#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"

namespace strata::models {

// The blocks of ModernBERT (Warner et al. 2024).
struct ModernBlockSpec {
  std::string layers;  // "model.layers.", before the number of the layer and a dot
  std::size_t layers_count, hidden, heads, inner;
  float eps, deviation;
  std::vector<bool> global;  // by layer: attention sees all of the document
  std::size_t window;        // of the others: keys at most window / 2 rows away
  // Where cos and sin of the positions, fp32 [positions, head_dim / 2] each, begin in the constants.
  std::size_t global_angles, local_angles, positions;
};

// Pre-norm blocks without biases: attention with rotary positions, over the whole document or a window, then GeGLU. The
// first has no norm before its attention.
void add_modern_blocks(std::vector<std::unique_ptr<Unit>>& units, const ModernBlockSpec& spec, const RunShape& run);

}  // namespace strata::models
