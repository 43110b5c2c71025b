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

void activation_forward(Lane& lane, Activation function, ConstView x, View y) {
  check(x, y);
  lane.operations().activation_forward(lane, function, x, y);
}

void activation_backward(Lane& lane, Activation function, ConstView dy, ConstView given, View dx) {
  check(given, dy);
  check(given, dx);
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
