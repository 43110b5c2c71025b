#include "device/ops/activation.h"

#include "device/cpu/grain.h"
#include "device/cpu/kernels/activation.h"
#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {
namespace {

// Applies one of the table's kernels to all of x.
using Forward = void (*)(const std::byte* x, std::byte* y, std::size_t n);
using Backward = void (*)(const std::byte* dy, const std::byte* x, std::byte* dx, std::size_t n);

void run_forward(Lane& lane, Forward kernel, ConstView x, View y) {
  submit(lane, [=](Team& team) {
    team.for_range(x.size, kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin;
      kernel(x.sub(begin, n).data, y.sub(begin, n).data, n);
    });
  });
}

void run_backward(Lane& lane, Backward kernel, ConstView dy, ConstView x, View dx) {
  submit(lane, [=](Team& team) {
    team.for_range(x.size, kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin;
      kernel(dy.sub(begin, n).data, x.sub(begin, n).data, dx.sub(begin, n).data, n);
    });
  });
}

// Calls f(row) for every row, in tasks of whole rows.
template <typename F>
void for_rows(Team& team, std::size_t rows, std::size_t width, F&& f) {
  team.for_range(rows, std::max<std::size_t>(1, kGrain / width), [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace

void gelu_forward(Lane& lane, ConstView x, View y) {
  run_forward(lane, activation_kernels().gelu_forward[index(x.dtype)], x, y);
}

void gelu_backward(Lane& lane, ConstView dy, ConstView x, View dx) {
  run_backward(lane, activation_kernels().gelu_backward[index(x.dtype)], dy, x, dx);
}

void gelu_erf_forward(Lane& lane, ConstView x, View y) {
  run_forward(lane, activation_kernels().gelu_erf_forward[index(x.dtype)], x, y);
}

void gelu_erf_backward(Lane& lane, ConstView dy, ConstView x, View dx) {
  run_backward(lane, activation_kernels().gelu_erf_backward[index(x.dtype)], dy, x, dx);
}

namespace {

template <typename Kernel>
void run_gated_forward(Lane& lane, Kernel kernel, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  submit(lane, [=](Team& team) {
    for_rows(team, rows, width, [&](std::size_t row) {
      kernel(gate_up.sub(2 * row * width, 2 * width).data, y.sub(row * width, width).data, width);
    });
  });
}

template <typename Kernel>
void run_gated_backward(Lane& lane, Kernel kernel, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up,
                        View d_gate_up) {
  submit(lane, [=](Team& team) {
    for_rows(team, rows, width, [&](std::size_t row) {
      kernel(dy.sub(row * width, width).data, gate_up.sub(2 * row * width, 2 * width).data,
             d_gate_up.sub(2 * row * width, 2 * width).data, width);
    });
  });
}

}  // namespace

void swiglu_forward(Lane& lane, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  run_gated_forward(lane, activation_kernels().swiglu_forward[index(y.dtype)], rows, width, gate_up, y);
}

void swiglu_backward(Lane& lane, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up, View d_gate_up) {
  run_gated_backward(lane, activation_kernels().swiglu_backward[index(dy.dtype)], rows, width, dy, gate_up, d_gate_up);
}

void geglu_forward(Lane& lane, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  run_gated_forward(lane, activation_kernels().geglu_forward[index(y.dtype)], rows, width, gate_up, y);
}

void geglu_backward(Lane& lane, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up, View d_gate_up) {
  run_gated_backward(lane, activation_kernels().geglu_backward[index(dy.dtype)], rows, width, dy, gate_up, d_gate_up);
}

}  // namespace strata::device::cpu
