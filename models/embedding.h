#pragma once
#include <memory>
#include <string>

#include "models/model.h"

namespace strata::models {

struct EmbeddingSpec {
  std::string table_name, position_name;  // no position table where its name is empty
  std::size_t vocabulary, positions, hidden;
  Init init;
  float dropout = 0;
};

// The first unit: token table (first in the flat buffer, so that a head can share it) and, for models with learned
// positions, the position table.
std::unique_ptr<Unit> make_embedding(const EmbeddingSpec& spec, const RunShape& run);

}  // namespace strata::models
