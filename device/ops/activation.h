#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/view.h"

namespace strata::device {

// An elementwise function, in fp32 arithmetic.
enum class Activation : std::uint8_t {
  gelu_tanh,  // the tanh approximation (Hendrycks & Gimpel 2016)
  gelu_erf,   // x P(X < x) for a standard normal X: the exact GELU
  tanh,
  relu  // max(x, 0), which keeps NaN
};
// y = f(x); y may be x for tanh and relu.
void activation_forward(Lane&, Activation, ConstView x, View y);
// dx = dy * f'(x), where `given` is x for both GELUs, and y = f(x) for tanh and relu; dx may be dy.
void activation_backward(Lane&, Activation, ConstView dy, ConstView given, View dx);

// The function applied to the gates of an MLP (Shazeer 2020): x sigmoid(x) in SwiGLU, the exact GELU in GeGLU.
enum class Gate : std::uint8_t { silu, gelu_erf };
// gate_up is [rows, 2 * width], gate first; y[rows, width] = f(gate) * up.
void gated_forward(Lane&, Gate, std::size_t rows, std::size_t width, ConstView gate_up, View y);
// d_gate_up may be gate_up.
void gated_backward(Lane&, Gate, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up, View d_gate_up);

}  // namespace strata::device
