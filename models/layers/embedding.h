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
  std::size_t first_position = 0;  // the row of the position table that position 0 looks up
  bool padded = false;             // position 0 is that of padding, whose row has no gradient
  // Token types, if there is a name; a position table is then there too. Of more than
  // one the batch has the column; of one it is of zeros, [tokens] std::uint32_t, where Context::constants begins.
  std::string type_name = {};
  std::size_t types = 0;
};

// The first unit: token table (first in the flat buffer, so that a head can share it) and, for models with learned
// positions, the position table and that of token types.
std::unique_ptr<Unit> make_embedding(const EmbeddingSpec& spec, const RunShape& run);

}  // namespace strata::models
