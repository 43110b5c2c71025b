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

// The first unit: token table (first in the flat buffer, so that a tied head finds it at its start) and, for models
// with learned positions, the position table.
std::unique_ptr<Unit> make_embedding(const EmbeddingSpec& spec, const RunShape& run);

// Elements of the flat buffer that a tied head shares: the table, rounded up to whole blocks of the gradient norm.
std::size_t tied_elements(std::size_t vocabulary, std::size_t hidden);

}  // namespace strata::models
