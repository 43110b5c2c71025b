#include "device/ops/embedding.h"

#include "device/operations.h"

namespace strata::device {

void embedding_forward(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, TableRows tile,
                       ConstView table, View out) {
  STRATA_CHECK_LE(rows * width, out.size);
  STRATA_CHECK_LE(tile.count * width, table.size);
  STRATA_CHECK(table.dtype == out.dtype);
  lane.operations().embedding_forward(lane, rows, width, indices, tile, table, out);
}

void embedding_add(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, ConstView table,
                   View out) {
  STRATA_CHECK_LE(rows * width, out.size);
  STRATA_CHECK(table.dtype == out.dtype);
  lane.operations().embedding_add(lane, rows, width, indices, table, out);
}

void embedding_backward(Lane& lane, std::size_t rows, std::size_t width, const std::uint32_t* indices, TableRows tile,
                        ConstView dout, View dtable, View workspace) {
  STRATA_CHECK_LE(rows * width, dout.size);
  STRATA_CHECK_LE(tile.count * width, dtable.size);
  STRATA_CHECK_LE(embedding_backward_workspace(rows, tile.count), workspace.bytes());
  lane.operations().embedding_backward(lane, rows, width, indices, tile, dout, dtable, workspace);
}

std::size_t embedding_backward_workspace(std::size_t rows, std::size_t tile_rows) {
  return (rows + tile_rows) * sizeof(std::uint32_t);
}

}  // namespace strata::device
