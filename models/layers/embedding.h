#pragma once
// models/layers/ holds the parts of models: embeddings (this header), blocks and heads, each a Unit or a part of one.

#include <cstddef>
#include <memory>
#include <string>

#include "models/model.h"

namespace strata::models {

struct EmbeddingSpec {
  std::string table_name, position_name;  // without a position table, its name is empty
  std::size_t vocabulary, positions, hidden;
  Init init;
  float dropout = 0;
  std::size_t first_position = 0;  // the row of the position table for position 0
  bool padded = false;             // position 0 is for padding, and its row has no gradient
  // If not empty, the model has token types, and a position table too. With more than one type, their column is part of
  // the batch. With one, it is a column of zeros, [tokens] std::uint32_t, at the start of Context::constants.
  std::string type_name = {};
  std::size_t types = 0;
};

// The first unit: the token table (first in the flat buffer, so that a head can share it) and, in models with learned
// positions, the position and token-type tables. With several virtual shards, each has a part of the vocabulary, and
// the other tables are whole.
std::unique_ptr<Unit> make_embedding(const EmbeddingSpec& spec, const RunShape& run);

struct EmbeddingNormSpec {
  std::string name;  // the LayerNorm's name, without ".weight" and ".bias"
  std::size_t hidden;
  float eps;
  float dropout;
  bool bias = true;
};

// An encoder's step after the sum of its embeddings: y = dropout(LayerNorm(x)).
std::unique_ptr<Unit> make_embedding_norm(const EmbeddingNormSpec& spec, const RunShape& run);
bool is_embedding_norm(const Unit& unit);

}  // namespace strata::models
