#pragma once
#include <cstdint>

namespace strata::device {

// The document of a row of a batch: its first row and the one behind its last, counted from the start of the row's
// sequence. All rows of a document have the same range. {0, 0}: the row belongs to none.
struct RowRange {
  std::uint32_t first = 0, end = 0;
  bool operator==(const RowRange&) const = default;
};
static_assert(sizeof(RowRange) == 8, "the width of a batch's column");

}  // namespace strata::device
