#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "device/row_range.h"

namespace strata::models {

// One micro-batch in device memory: columns of [tokens] each, except loss_rows.
struct Batch {
  const std::uint32_t* tokens;
  const std::int32_t* labels;         // for the rows that enter the loss: the first entries of the column
  const std::uint32_t* positions;     // the position in the row's document; see place_padding()
  const device::RowRange* documents;  // each row's document: attention sees no other rows
  // The rows that enter the loss, ascending; the rest of the column is row 0, with labels that do not count. null: all
  // rows.
  const std::uint32_t* loss_rows = nullptr;
  const std::uint32_t* types = nullptr;  // token types; null: all are 0
  // The sets of classes of the rows that enter the loss (device::class_set_words()); null: the labels hold the targets.
  const std::uint32_t* class_sets = nullptr;
};

// The same columns as the host writes them, or the rows of one of its sequences.
struct BatchRows {
  std::span<std::uint32_t> tokens;
  std::span<std::int32_t> labels;  // device::kIgnoredLabel: the row does not count
  std::span<std::uint32_t> positions;
  std::span<device::RowRange> documents;
  std::span<std::uint32_t> loss_rows = {};    // for the whole micro-batch; empty: all rows
  std::span<std::uint32_t> types = {};        // token types; empty: the model has none
  std::optional<std::uint32_t> padding = {};  // the token without a position, if there is one
  std::span<std::uint32_t> class_sets = {};   // for the whole micro-batch, equally many words per row; empty: none

  // The result has no loss_rows and no class_sets.
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

// If the model has a padding token: its rows get position 0, and the other rows of each document get 1, 2, 3 ... Call
// it once, on filled columns whose positions begin at 0 in each document.
void place_padding(const BatchRows& rows);

// How the columns of a micro-batch follow each other in memory.
struct BatchShape {
  std::size_t tokens = 0;
  std::size_t loss_rows = 0;  // the most rows that enter the loss; 0: all rows, without a column that lists them
  bool types = false;         // has a column of token types
  std::optional<std::uint32_t> padding = {};  // BatchRows::padding
  std::size_t class_words = 0;                // of the set of classes of a row that enters the loss

  std::size_t set_words() const { return class_words * (loss_rows > 0 ? loss_rows : tokens); }
  std::size_t bytes() const {
    return tokens * ((types ? 4 : 3) * sizeof(std::uint32_t) + sizeof(device::RowRange)) +
           (loss_rows + set_words()) * sizeof(std::uint32_t);
  }
  Batch at(const std::byte* memory) const;
  BatchRows rows(std::byte* memory) const;
};

}  // namespace strata::models
