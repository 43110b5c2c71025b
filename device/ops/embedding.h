#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// Rows [first, first + count) of a table of `total` rows: all of it, or a tile. A view of them starts at row `first`.
struct TableRows {
  std::size_t first, count, total;
};

// out[i] = table[indices[i]] for i in [0, rows) if the index is in the tile; other rows of out do not change.
void embedding_forward(Lane&, std::size_t rows, std::size_t width, const std::uint32_t* indices, TableRows tile,
                       ConstView table, View out);
// out[i] += table[indices[i]] for i in [0, rows). Used for positions.
void embedding_add(Lane&, std::size_t rows, std::size_t width, const std::uint32_t* indices, ConstView table, View out);
// Writes all rows of the tile: row t of the table is the sum of dout[i] over i with indices[i] = t, in ascending i, in
// fp32, rounded once; 0 if there is none. Used for tokens, and again for positions.
void embedding_backward(Lane&, std::size_t rows, std::size_t width, const std::uint32_t* indices, TableRows tile,
                        ConstView dout, View dtable, View workspace);
std::size_t embedding_backward_workspace(std::size_t rows, std::size_t tile_rows);

}  // namespace strata::device
