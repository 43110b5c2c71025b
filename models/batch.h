#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "device/row_range.h"

namespace strata::models {

// One micro-batch in device memory: columns of [tokens] each, but for loss_rows.
struct Batch {
  const std::uint32_t* tokens;
  const std::int32_t* labels;         // of the rows that the loss takes: the first of the column
  const std::uint32_t* positions;     // in the row's document; of models that skip padding as place_padding() has them
  const device::RowRange* documents;  // of each row: attention sees no other rows
  // The rows that the loss takes, rising, and behind the last of them row 0 with labels that do not count; null: all.
  const std::uint32_t* loss_rows = nullptr;
  const std::uint32_t* types = nullptr;  // of tokens; null: all are 0
};

// The same as the host writes it, or the rows of one of its sequences.
struct BatchRows {
  std::span<std::uint32_t> tokens;
  std::span<std::int32_t> labels;  // device::kIgnoredLabel: does not count
  std::span<std::uint32_t> positions;
  std::span<device::RowRange> documents;
  std::span<std::uint32_t> loss_rows = {};    // of the whole micro-batch; empty: all
  std::span<std::uint32_t> types = {};        // of tokens; empty: the model has none
  std::optional<std::uint32_t> padding = {};  // the token that has no position, if there is one

  // Without loss_rows.
  BatchRows subrows(std::size_t begin, std::size_t count) const {
    return {tokens.subspan(begin, count),
            labels.subspan(begin, count),
            positions.subspan(begin, count),
            documents.subspan(begin, count),
            {},
            types.empty() ? types : types.subspan(begin, count),
            padding};
  }
};

// If the model has a token of padding: its rows get position 0, and of each document the others 1, 2, 3 ... For columns
// that are filled, whose positions begin at 0 in each document; once.
void place_padding(const BatchRows& rows);

// How the columns of a micro-batch lie in memory, one behind the other.
struct BatchShape {
  std::size_t tokens = 0;
  std::size_t loss_rows = 0;                  // that the loss takes at most; 0: all, without a column that names them
  bool types = false;                         // a column of token types
  std::optional<std::uint32_t> padding = {};  // BatchRows::padding

  std::size_t bytes() const {
    return tokens * ((types ? 4 : 3) * sizeof(std::uint32_t) + sizeof(device::RowRange)) +
           loss_rows * sizeof(std::uint32_t);
  }
  Batch at(const std::byte* memory) const;
  BatchRows rows(std::byte* memory) const;
};

}  // namespace strata::models
