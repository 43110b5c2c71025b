#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "models/model.h"

namespace strata::models {

struct EmbeddingNormSpec {
  std::string name;  // the LayerNorm's name, without ".weight" and ".bias"
  std::size_t hidden;
  float eps;
  float dropout;
  bool bias = true;
};

// An encoder's step after the sum of its embeddings: y = dropout(LayerNorm(x)).
std::unique_ptr<Unit> make_embedding_norm(const EmbeddingNormSpec& spec, const RunShape& run);

}  // namespace strata::models
