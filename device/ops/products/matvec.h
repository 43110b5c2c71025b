#pragma once
#include <cstddef>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// A matrix [out, in], row-major; input_major: stored as [in, out].
struct MatvecShape {
  std::size_t out, in;
  bool input_major = false;
};

// y[out] = W x (+ bias), in fp32, rounded once into y (x's dtype, or fp32): the product for a single row, bound by
// reading W once. Each sum has one order for any number of threads.
void matvec(Lane&, const MatvecShape&, ConstView w, ConstView x, ConstView bias, View y);

}  // namespace strata::device
