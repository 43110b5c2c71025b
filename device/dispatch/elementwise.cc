#include "device/ops/elementwise.h"

#include "device/numeric/row_blocks.h"
#include "device/operations.h"

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

}  // namespace strata::device
