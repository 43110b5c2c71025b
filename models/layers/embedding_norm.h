#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "models/model.h"

namespace strata::models {

struct EmbeddingNormSpec {
  std::string name;  // of the LayerNorm, before ".weight" and ".bias"
  std::size_t hidden;
  float eps;
  float dropout;
  bool bias = true;
};

// What encoders do to the sum of their embeddings: y = dropout(LayerNorm(x)).
std::unique_ptr<Unit> make_embedding_norm(const EmbeddingNormSpec& spec, const RunShape& run);

}  // namespace strata::models
