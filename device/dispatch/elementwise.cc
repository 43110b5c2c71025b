#include "device/ops/elementwise.h"

#include <bit>
#include <limits>

#include "base/error.h"
#include "device/numeric/row_blocks.h"
#include "device/operations.h"
#include "device/ops/activation.h"
#include "device/ops/embedding.h"

namespace strata::device {

void zero(Lane& lane, View x) {
  lane.operations().zero(lane, x);
}

void cast(Lane& lane, ConstView from, View to) {
  STRATA_CHECK_EQ(from.size, to.size);
  lane.operations().cast(lane, from, to);
}

void cast_columns(Lane& lane, std::size_t rows, std::size_t columns, std::size_t from_stride, ConstView from,
                  std::size_t to_stride, View to) {
  if (rows == 0) return;
  STRATA_CHECK_LE((rows - 1) * from_stride + columns, from.size);
  STRATA_CHECK_LE((rows - 1) * to_stride + columns, to.size);
  lane.operations().cast_columns(lane, rows, columns, from_stride, from, to_stride, to);
}

void add(Lane& lane, ConstView from, View to) {
  STRATA_CHECK_EQ(from.size, to.size);
  STRATA_CHECK(to.dtype == DType::fp32);
  lane.operations().add(lane, from, to);
}

void scale(Lane& lane, ConstView x, float factor, View out) {
  STRATA_CHECK_EQ(x.size, out.size);
  STRATA_CHECK(x.dtype == out.dtype);
  lane.operations().scale(lane, x, factor, out);
}

void count_nonfinite(Lane& lane, ConstView x, std::uint64_t* count) {
  lane.operations().count_nonfinite(lane, x, count);
}

void column_sum(Lane& lane, std::size_t rows, std::size_t columns, std::size_t stride, ConstView x, View out,
                View workspace) {
  STRATA_CHECK_EQ(out.size, columns);
  if (rows == 0) return zero(lane, out);
  STRATA_CHECK_LE((rows - 1) * stride + columns, x.size);
  STRATA_CHECK_LE(column_sum_workspace(rows, columns), workspace.bytes());
  lane.operations().column_sum(lane, rows, columns, stride, x, out, workspace);
}

std::size_t column_sum_workspace(std::size_t rows, std::size_t columns) {
  return kColumnShares * RowBlocks(rows).count * columns * sizeof(float);
}

void dropout(Lane& lane, const Dropout& use, ConstView x, ConstView residual, View out) {
  STRATA_CHECK_EQ(x.size, out.size);
  STRATA_CHECK(x.dtype == out.dtype);
  STRATA_CHECK(!residual || (residual.size == x.size && residual.dtype == x.dtype));
  STRATA_CHECK(use.probability >= 0.0f && use.probability < 1.0f);
  STRATA_CHECK_EQ(use.first % 4, 0u);
  STRATA_CHECK(use.columns % 4 == 0 && use.stride % 4 == 0);
  STRATA_CHECK(use.columns == 0 || (x.size % use.columns == 0 && x.size <= std::numeric_limits<std::uint32_t>::max()));
  lane.operations().dropout(lane, use, x, residual, out);
}

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

namespace {

void check_bias(ConstView bias, View out) {
  if (!bias) return;
  STRATA_CHECK(bias.dtype == out.dtype);
  STRATA_CHECK_EQ(out.size % bias.size, 0u);
}

}  // namespace

void tree_sum(Lane& lane, std::size_t count, ConstView partials, ConstView bias, View out) {
  STRATA_CHECK(std::has_single_bit(count));
  STRATA_CHECK_LE(count, kMaxPartials);
  STRATA_CHECK(partials.dtype == DType::fp32);
  STRATA_CHECK_EQ(partials.size, count * out.size);
  if (out.size == 0) return;
  check_bias(bias, out);
  lane.operations().tree_sum(lane, count, partials, bias, out);
}

void tree_sum_of_pieces(Lane& lane, std::span<const std::byte* const> partials, ConstView bias, View out) {
  STRATA_CHECK(std::has_single_bit(partials.size()));
  STRATA_CHECK_LE(partials.size(), kMaxPieces);
  if (out.size == 0) return;
  check_bias(bias, out);
  lane.operations().tree_sum_of_pieces(lane, partials, bias, out);
}

void unpack(Lane& lane, StorageFormat format, const std::byte* packed, View out) {
  STRATA_CHECK(is_nf4(format));
  STRATA_CHECK_EQ(out.size % kNf4Block, 0u);
  lane.operations().unpack(lane, format, packed, out);
}

namespace {

void check_same_shape(ConstView x, ConstView y) {
  STRATA_CHECK_EQ(x.size, y.size);
  STRATA_CHECK(x.dtype == y.dtype);
}

void check_gated(std::size_t rows, std::size_t width, ConstView gate_up, ConstView y) {
  STRATA_CHECK_LE(2 * rows * width, gate_up.size);
  STRATA_CHECK_LE(rows * width, y.size);
  STRATA_CHECK(gate_up.dtype == y.dtype);
}

}  // namespace

void activation_forward(Lane& lane, Activation function, ConstView x, View y) {
  check_same_shape(x, y);
  lane.operations().activation_forward(lane, function, x, y);
}

void activation_backward(Lane& lane, Activation function, ConstView dy, ConstView given, View dx) {
  check_same_shape(given, dy);
  check_same_shape(given, dx);
  lane.operations().activation_backward(lane, function, dy, given, dx);
}

void gated_forward(Lane& lane, Gate gate, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  check_gated(rows, width, gate_up, y);
  lane.operations().gated_forward(lane, gate, rows, width, gate_up, y);
}

void gated_backward(Lane& lane, Gate gate, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up,
                    View d_gate_up) {
  check_gated(rows, width, gate_up, dy);
  check_gated(rows, width, d_gate_up, dy);
  lane.operations().gated_backward(lane, gate, rows, width, dy, gate_up, d_gate_up);
}

}  // namespace strata::device
