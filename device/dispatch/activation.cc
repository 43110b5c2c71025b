#include "device/ops/activation.h"

#include "device/operations.h"

namespace strata::device {
namespace {

void check(ConstView x, ConstView y) {
  STRATA_CHECK_EQ(x.size, y.size);
  STRATA_CHECK(x.dtype == y.dtype);
}

void check_gated(std::size_t rows, std::size_t width, ConstView gate_up, ConstView y) {
  STRATA_CHECK_LE(2 * rows * width, gate_up.size);
  STRATA_CHECK_LE(rows * width, y.size);
  STRATA_CHECK(gate_up.dtype == y.dtype);
}

}  // namespace

void gelu_forward(Lane& lane, ConstView x, View y) {
  check(x, y);
  lane.operations().gelu_forward(lane, x, y);
}

void gelu_backward(Lane& lane, ConstView dy, ConstView x, View dx) {
  check(x, dy);
  check(x, dx);
  lane.operations().gelu_backward(lane, dy, x, dx);
}

void gelu_erf_forward(Lane& lane, ConstView x, View y) {
  check(x, y);
  lane.operations().gelu_erf_forward(lane, x, y);
}

void gelu_erf_backward(Lane& lane, ConstView dy, ConstView x, View dx) {
  check(x, dy);
  check(x, dx);
  lane.operations().gelu_erf_backward(lane, dy, x, dx);
}

void swiglu_forward(Lane& lane, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  check_gated(rows, width, gate_up, y);
  lane.operations().swiglu_forward(lane, rows, width, gate_up, y);
}

void swiglu_backward(Lane& lane, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up, View d_gate_up) {
  check_gated(rows, width, gate_up, dy);
  check_gated(rows, width, d_gate_up, dy);
  lane.operations().swiglu_backward(lane, rows, width, dy, gate_up, d_gate_up);
}

void geglu_forward(Lane& lane, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  check_gated(rows, width, gate_up, y);
  lane.operations().geglu_forward(lane, rows, width, gate_up, y);
}

void geglu_backward(Lane& lane, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up, View d_gate_up) {
  check_gated(rows, width, gate_up, dy);
  check_gated(rows, width, d_gate_up, dy);
  lane.operations().geglu_backward(lane, rows, width, dy, gate_up, d_gate_up);
}

}  // namespace strata::device
