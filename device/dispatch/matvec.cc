#include "device/ops/products/matvec.h"

#include "device/operations.h"

namespace strata::device {

void matvec(Lane& lane, const MatvecShape& shape, ConstView w, ConstView x, ConstView bias, View y) {
  STRATA_CHECK_LE(shape.out * shape.in, w.size);
  STRATA_CHECK_LE(shape.in, x.size);
  STRATA_CHECK_LE(shape.out, y.size);
  STRATA_CHECK(w.dtype == x.dtype && (y.dtype == x.dtype || y.dtype == DType::fp32));
  STRATA_CHECK(!bias || (bias.size >= shape.out && bias.dtype == x.dtype));
  lane.operations().matvec(lane, shape, w, x, bias, y);
}

}  // namespace strata::device
