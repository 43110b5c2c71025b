#pragma once
#include <cstddef>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// y = gelu(x), the tanh approximation (Hendrycks & Gimpel 2016), elementwise; fp32 arithmetic.
void gelu_forward(Lane&, ConstView x, View y);
// dx = dy * gelu'(x); dx may be dy.
void gelu_backward(Lane&, ConstView dy, ConstView x, View dx);

// y = x P(X < x) for a standard normal X: the exact GELU (erf), elementwise; fp32 arithmetic.
void gelu_erf_forward(Lane&, ConstView x, View y);
// dx = dy * gelu'(x); dx may be dy.
void gelu_erf_backward(Lane&, ConstView dy, ConstView x, View dx);

// gate_up is [rows, 2 * width], gate first; y[rows, width] = silu(gate) * up (Shazeer 2020).
void swiglu_forward(Lane&, std::size_t rows, std::size_t width, ConstView gate_up, View y);
// d_gate_up may be gate_up.
void swiglu_backward(Lane&, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up, View d_gate_up);

// The same with gelu_erf(gate) * up.
void geglu_forward(Lane&, std::size_t rows, std::size_t width, ConstView gate_up, View y);
void geglu_backward(Lane&, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up, View d_gate_up);

}  // namespace strata::device
