#include "models/linear.h"

#include <algorithm>

#include "device/ops/activation.h"
#include "device/ops/elementwise.h"
#include "device/ops/matvec.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::ProductShape;
using device::View;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

View fp32_view(View scratch, std::size_t offset, std::size_t size) {
  return View{scratch.data + offset, size, DType::fp32};
}

View rest_of(View scratch, std::size_t offset) {
  return View{scratch.data + offset, (scratch.bytes() - offset) / size_of(scratch.dtype), scratch.dtype};
}

}  // namespace

Linear::Linear(const Spec& spec) : spec_(spec) {
  struct Run {
    std::size_t out, weight, column;
  };
  std::vector<Run> runs;
  for (const Piece& piece : spec_.pieces) {
    if (!runs.empty() && !spec_.input_major && runs.back().weight + runs.back().out * spec_.in == piece.weight)
      runs.back().out += piece.out;
    else
      runs.push_back({piece.out, piece.weight, out_});
    out_ += piece.out;
  }
  const auto rows = static_cast<std::int64_t>(spec_.rows), in = static_cast<std::int64_t>(spec_.in);
  const auto all = static_cast<std::int64_t>(out_);
  const DType t = spec_.dtype;
  for (const Run& run : runs) {
    const auto n = static_cast<std::int64_t>(run.out);
    const std::int64_t ldw = spec_.input_major ? n : in;
    const bool sum = runs.size() > 1;
    ProductShape forward{rows, n, in, false, !spec_.input_major, in, ldw, all, t, t, spec_.bias, false};
    ProductShape input{rows, in, n, false, spec_.input_major, all, ldw, in, t, sum ? DType::fp32 : t, false, sum};
    ProductShape weights = spec_.input_major ? ProductShape{in, n, rows, true, false, in, all, ldw, t, t, false, false}
                                             : ProductShape{n, in, rows, true, false, all, in, ldw, t, t, false, false};
    groups_.push_back(Group{run.out, run.weight, run.column, device::Product(spec_.device, forward),
                            device::Product(spec_.device, input), device::Product(spec_.device, weights)});
  }
}

std::size_t Linear::input_sum_bytes() const {
  return groups_.size() > 1 ? aligned(spec_.rows * spec_.in * sizeof(float)) : 0;
}

std::size_t Linear::scratch_bytes(int threads) const {
  std::size_t products = 0;
  for (const Group& g : groups_)
    for (const device::Product* p : {&g.forward, &g.input, &g.weights})
      products = std::max(products, p->workspace_bytes(threads));
  const std::size_t packed_bias = spec_.bias ? aligned(out_ * size_of(spec_.dtype)) : 0;
  const std::size_t sums = spec_.bias ? device::column_sum_workspace(spec_.rows, out_) : 0;
  return std::max(packed_bias + input_sum_bytes() + products, sums);
}

void Linear::list_products(std::vector<ProductShape>& out) const {
  for (const Group& g : groups_)
    for (const device::Product* p : {&g.forward, &g.input, &g.weights}) out.push_back(p->shape());
}

// A product of one row reads W once and multiplies little: no library's tiles.
void Linear::forward_row(Lane& lane, const ParameterRange& parameters, ConstView x, View y, device::Epilogue epilogue,
                         View epilogue_out) const {
  std::size_t column = 0;
  for (const Piece& piece : spec_.pieces) {
    const ConstView bias = spec_.bias ? parameters.sub(piece.bias, piece.out) : ConstView{};
    device::matvec(lane, {piece.out, spec_.in, spec_.input_major}, parameters.sub(piece.weight, piece.out * spec_.in),
                   x, bias, y.sub(column, piece.out));
    column += piece.out;
  }
  if (epilogue == device::Epilogue::gelu_tanh) device::gelu_forward(lane, y.sub(0, out_), epilogue_out.sub(0, out_));
}

void Linear::forward(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View scratch,
                     device::Epilogue epilogue, View epilogue_out) const {
  if (spec_.rows == 1) return forward_row(lane, parameters, x, y, epilogue, epilogue_out);
  ConstView bias;
  std::size_t used = 0;
  if (spec_.bias && spec_.pieces.size() == 1) {
    bias = parameters.sub(spec_.pieces[0].bias, out_);
  } else if (spec_.bias) {
    // Biases are shorter than the alignment of parameters: pack them side by side.
    View packed{scratch.data, out_, spec_.dtype};
    std::size_t column = 0;
    for (const Piece& piece : spec_.pieces) {
      device::cast(lane, parameters.sub(piece.bias, piece.out), packed.sub(column, piece.out));
      column += piece.out;
    }
    bias = packed;
    used = aligned(packed.bytes());
  }
  for (const Group& g : groups_) {
    const std::size_t columns_left = y.size - g.column;
    g.forward.run(lane, x, parameters.sub(g.weight, g.out * spec_.in), bias ? bias.sub(g.column, g.out) : bias,
                  y.sub(g.column, columns_left), rest_of(scratch, used), epilogue,
                  epilogue_out ? epilogue_out.sub(g.column, columns_left) : epilogue_out);
  }
}

void Linear::backward_input(Lane& lane, const ParameterRange& parameters, ConstView dy, View dx, View scratch) const {
  const bool several = groups_.size() > 1;
  const View target = several ? fp32_view(scratch, 0, spec_.rows * spec_.in) : dx;
  const View rest = rest_of(scratch, input_sum_bytes());
  if (several) device::zero(lane, target);
  for (const Group& g : groups_)
    g.input.run(lane, dy.sub(g.column, dy.size - g.column), parameters.sub(g.weight, g.out * spec_.in), {}, target,
                rest);
  if (several) device::cast(lane, target, dx);
}

void Linear::backward_parameters(Lane& lane, ConstView x, ConstView dy, const GradientRange& gradients,
                                 View scratch) const {
  for (const Group& g : groups_) {
    const View dw = gradients.sub(g.weight, g.out * spec_.in);
    const ConstView dy_group = dy.sub(g.column, dy.size - g.column);
    if (spec_.input_major)
      g.weights.run(lane, x, dy_group, {}, dw, scratch);
    else
      g.weights.run(lane, dy_group, x, {}, dw, scratch);
  }
  if (!spec_.bias) return;
  std::size_t column = 0;
  for (const Piece& piece : spec_.pieces) {
    device::column_sum(lane, spec_.rows, piece.out, out_, dy.sub(column, dy.size - column),
                       gradients.sub(piece.bias, piece.out), scratch);
    column += piece.out;
  }
}

}  // namespace strata::models
