#include "device/ops/attention/rope.h"

#include "device/operations.h"

namespace strata::device {

void rope(Lane& lane, const RopeShape& shape, View x, const std::uint32_t* positions, ConstView cos, ConstView sin,
          bool inverse) {
  const std::size_t used = shape.heads * shape.head_dim;
  STRATA_CHECK_EQ(shape.head_dim % 2, 0u);
  STRATA_CHECK_LE(used, shape.stride);
  if (shape.rows > 0) STRATA_CHECK_LE((shape.rows - 1) * shape.stride + used, x.size);
  STRATA_CHECK_EQ(cos.size, sin.size);
  STRATA_CHECK(cos.dtype == DType::fp32 && sin.dtype == DType::fp32);
  lane.operations().rope(lane, shape, x, positions, cos, sin, inverse);
}

}  // namespace strata::device
