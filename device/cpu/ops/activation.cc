#include "device/ops/activation.h"

#include "device/cpu/kernels/activation.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/row_blocks.h"

namespace strata::device {
namespace {

// Calls f(row) for every row, in tasks of whole rows.
template <typename F>
void for_rows(cpu::Team& team, std::size_t rows, std::size_t width, F&& f) {
  team.for_range(rows, std::max<std::size_t>(1, cpu::kGrain / width), [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace

void gelu_forward(Lane& lane, ConstView x, View y) {
  STRATA_CHECK_EQ(x.size, y.size);
  STRATA_CHECK(x.dtype == y.dtype);
  const auto kernel = cpu::activation_kernels().gelu_forward[cpu::index(x.dtype)];
  cpu::submit(lane, [=](cpu::Team& team) {
    team.for_range(x.size, cpu::kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin;
      kernel(x.sub(begin, n).data, y.sub(begin, n).data, n);
    });
  });
}

void gelu_backward(Lane& lane, ConstView dy, ConstView x, View dx) {
  STRATA_CHECK_EQ(x.size, dy.size);
  STRATA_CHECK_EQ(x.size, dx.size);
  STRATA_CHECK(x.dtype == dy.dtype && x.dtype == dx.dtype);
  const auto kernel = cpu::activation_kernels().gelu_backward[cpu::index(x.dtype)];
  cpu::submit(lane, [=](cpu::Team& team) {
    team.for_range(x.size, cpu::kGrain, [&](std::size_t begin, std::size_t end) {
      const std::size_t n = end - begin;
      kernel(dy.sub(begin, n).data, x.sub(begin, n).data, dx.sub(begin, n).data, n);
    });
  });
}

void swiglu_forward(Lane& lane, std::size_t rows, std::size_t width, ConstView gate_up, View y) {
  STRATA_CHECK_LE(2 * rows * width, gate_up.size);
  STRATA_CHECK_LE(rows * width, y.size);
  STRATA_CHECK(gate_up.dtype == y.dtype);
  const auto kernel = cpu::activation_kernels().swiglu_forward[cpu::index(y.dtype)];
  cpu::submit(lane, [=](cpu::Team& team) {
    for_rows(team, rows, width, [&](std::size_t row) {
      kernel(gate_up.sub(2 * row * width, 2 * width).data, y.sub(row * width, width).data, width);
    });
  });
}

void swiglu_backward(Lane& lane, std::size_t rows, std::size_t width, ConstView dy, ConstView gate_up, View d_gate_up) {
  STRATA_CHECK_LE(rows * width, dy.size);
  STRATA_CHECK_LE(2 * rows * width, gate_up.size);
  STRATA_CHECK_LE(2 * rows * width, d_gate_up.size);
  STRATA_CHECK(gate_up.dtype == dy.dtype && gate_up.dtype == d_gate_up.dtype);
  const auto kernel = cpu::activation_kernels().swiglu_backward[cpu::index(dy.dtype)];
  cpu::submit(lane, [=](cpu::Team& team) {
    for_rows(team, rows, width, [&](std::size_t row) {
      kernel(dy.sub(row * width, width).data, gate_up.sub(2 * row * width, 2 * width).data,
             d_gate_up.sub(2 * row * width, 2 * width).data, width);
    });
  });
}

}  // namespace strata::device
