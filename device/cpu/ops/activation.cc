#include "device/ops/activation.h"

#include <cmath>

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"

namespace strata::device::cpu {
namespace {

// y[i] = f(a[i], b[i]), in fp32.
template <typename F>
void map(Lane& lane, ConstView a, ConstView b, View y, F f) {
  submit(lane, [=](Team& team) {
    visit(y.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T *from = a.as<T>(), *other = b.as<T>();
      T* to = y.as<T>();
      team.for_range(y.size, kGrain, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) to[i] = from_float<T>(f(to_float(from[i]), to_float(other[i])));
      });
    });
  });
}

}  // namespace

void activation_forward(Lane& lane, Activation function, ConstView x, View y) {
  if (function == Activation::tanh) return map(lane, x, x, y, [](float a, float) { return std::tanh(a); });
  if (function == Activation::relu) return map(lane, x, x, y, [](float a, float) { return a < 0 ? 0.0f : a; });
  const auto kernel = activation_kernels().forward[index(function)][index(x.dtype)];
  submit(lane, [=](Team& team) {
    team.for_range(x.size, kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin;
      kernel(x.sub(begin, n).data, y.sub(begin, n).data, n);
    });
  });
}

void activation_backward(Lane& lane, Activation function, ConstView dy, ConstView given, View dx) {
  if (function == Activation::tanh)
    return map(lane, dy, given, dx, [](float d, float t) { return d * std::fma(-t, t, 1.0f); });
  if (function == Activation::relu) return map(lane, dy, given, dx, [](float d, float r) { return r > 0 ? d : 0.0f; });
  const auto kernel = activation_kernels().backward[index(function)][index(given.dtype)];
  submit(lane, [=](Team& team) {
    team.for_range(given.size, kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin;
      kernel(dy.sub(begin, n).data, given.sub(begin, n).data, dx.sub(begin, n).data, n);
    });
  });
}

void gated_forward(Lane& lane, Gate gate, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  const auto kernel = activation_kernels().gated_forward[index(gate)][index(y.dtype)];
  submit(lane, [=](Team& team) {
    for_rows(team, rows, width, [&](std::size_t row) {
      kernel(gate_up.sub(2 * row * width, 2 * width).data, y.sub(row * width, width).data, width);
    });
  });
}

void gated_backward(Lane& lane, Gate gate, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up,
                    View d_gate_up) {
  const auto kernel = activation_kernels().gated_backward[index(gate)][index(dy.dtype)];
  submit(lane, [=](Team& team) {
    for_rows(team, rows, width, [&](std::size_t row) {
      kernel(dy.sub(row * width, width).data, gate_up.sub(2 * row * width, 2 * width).data,
             d_gate_up.sub(2 * row * width, 2 * width).data, width);
    });
  });
}

}  // namespace strata::device::cpu
