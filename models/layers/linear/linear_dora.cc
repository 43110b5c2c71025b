// The members of Linear that implement DoRA (device/ops/dora.h).
#include <algorithm>
#include <utility>

#include "device/ops/dora.h"
#include "device/ops/elementwise.h"
#include "models/layers/linear/linear.h"
#include "models/layers/linear/products.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

// The bytes of the input after an adapter's dropout or, in backward, of its gradient.
std::size_t wide_bytes(const Linear::Spec& spec, bool drops) {
  const DType dtype = spec.partial_input_gradient ? DType::fp32 : spec.dtype;
  return drops ? aligned(spec.rows * spec.in * size_of(dtype)) : 0;
}

}  // namespace

device::DoraShape Linear::dora_shape(const Tensor& tensor) const {
  return {tensor.out, spec_.in, tensor.low_rank.rank, spec_.input_major, tensor.low_rank.scale};
}

std::size_t Linear::dora_bytes() const {
  return dora_ ? 2 * aligned(out_ * sizeof(float)) + aligned(spec_.rows * spec_.width * size_of(product_dtype())) +
                     wide_bytes(spec_, !singles_.empty())
               : 0;
}

Linear::Dora Linear::cut(View scratch, const KeptScales& kept) const {
  if (!dora_) return {{}, {}, {}, {}, scratch};
  std::size_t at = 0;
  const auto next = [&](std::size_t size, DType dtype) {
    const View view{scratch.data + at, size, dtype};
    at += aligned(view.bytes());
    return view;
  };
  Dora out;
  out.norms = next(out_, DType::fp32);
  out.scales = next(out_, DType::fp32);
  if (kept.scales) out.scales = kept.scales;
  out.product = next(spec_.rows * spec_.width, product_dtype());
  if (!singles_.empty()) {
    out.wide = {scratch.data + at, spec_.rows * spec_.in, spec_.dtype};
    at += wide_bytes(spec_, true);
  }
  out.rest = View{scratch.data + at, (scratch.bytes() - at) / size_of(scratch.dtype), scratch.dtype};
  return out;
}

void Linear::write_partial_squares(Lane& lane, const ParameterRange& parameters, View to, View scratch) const {
  std::size_t column = 0;
  for (const Tensor& tensor : spec_.tensors) {
    const LowRank& at = tensor.low_rank;
    if (at.dora)
      dora_squares(lane, dora_shape(tensor), parameters.sub(tensor.weight, tensor.out * spec_.in),
                   parameters.sub(at.a, at.rank * spec_.in), parameters.sub(at.b, tensor.out * at.rank),
                   to.sub(column, tensor.out), scratch);
    column += tensor.out;
  }
}

void Linear::run_norms(Lane& lane, const ParameterRange& parameters, const Dora& dora, ConstView squares,
                       View scratch) const {
  STRATA_CHECK_EQ(squares.size, this->squares());
  if (squares.size == 0) {
    write_partial_squares(lane, parameters, dora.norms, scratch);
    squares = dora.norms;
  }
  std::size_t column = 0;
  for (const Tensor& tensor : spec_.tensors) {
    if (tensor.low_rank.dora)
      dora_scales(lane, squares.sub(column, tensor.out), parameters.sub(tensor.low_rank.magnitude, tensor.out),
                  dora.norms.sub(column, tensor.out), dora.scales.sub(column, tensor.out));
    column += tensor.out;
  }
}

void Linear::run_scales(Lane& lane, const Dora& dora, ConstView x, const ParameterRange* biases, View out) const {
  std::size_t column = 0;
  for (const Tensor& tensor : spec_.tensors) {
    const ConstView bias = biases && spec_.bias ? biases->sub(tensor.bias, tensor.out) : ConstView{};
    const ConstView scales = tensor.low_rank.dora ? ConstView(dora.scales.sub(column, tensor.out)) : ConstView{};
    if (scales || bias || x.data != out.data)
      scale_columns(lane, spec_.rows, tensor.out, spec_.width, columns_from(x, column), scales, bias,
                    columns_from(out, column));
    column += tensor.out;
  }
}

device::Dropout Linear::of(std::size_t tensor, device::Dropout dropout) const {
  dropout.site += static_cast<std::uint32_t>(tensor);
  return dropout;
}

void Linear::run_dropped(Lane& lane, const ParameterRange& parameters, ConstView x, View y, const Dora& dora,
                         const device::Dropout& dropout) const {
  const View scratch = own_scratch(dora.rest), wide = dora.wide;
  x = x.sub(0, wide.size);
  for (std::size_t i = 0; i < singles_.size(); ++i) {
    const Tensor& tensor = spec_.tensors[i];
    const Single& one = singles_[i];
    const ConstView w = parameters.sub(tensor.weight, tensor.out * spec_.in);
    if (!tensor.low_rank.dora) {
      if (y) one.forward.run(lane, x, w, {}, columns_from(y, one.column), scratch);
      continue;
    }
    device::dropout(lane, of(i, dropout), x, {}, wide);
    one.forward.run(lane, wide, w, {}, columns_from(dora.product, one.column), scratch);
    if (!y) continue;
    scale_columns(lane, spec_.rows, spec_.in, spec_.in, x, {}, {}, wide, wide, -1);
    one.forward.run(lane, wide, w, {}, columns_from(y, one.column), scratch);
  }
}

void Linear::forward_dropped(Lane& lane, const ParameterRange& parameters, ConstView x, View y, const Dora& dora,
                             const device::Dropout& dropout, ConstView squares) const {
  const View scratch = own_scratch(dora.rest);
  run_dropped(lane, parameters, x, y, dora, dropout);
  low_rank_->forward(lane, parameters, x, dora.product, dora.rest, scratch, dropout);
  run_norms(lane, parameters, dora, squares, scratch);
  for (std::size_t i = 0; i < singles_.size(); ++i) {
    const Tensor& tensor = spec_.tensors[i];
    const std::size_t column = singles_[i].column;
    const ConstView bias = spec_.bias ? parameters.sub(tensor.bias, tensor.out) : ConstView{};
    const View to = columns_from(y, column);
    if (tensor.low_rank.dora)
      scale_columns(lane, spec_.rows, tensor.out, spec_.width, columns_from(ConstView(dora.product), column),
                    dora.scales.sub(column, tensor.out), bias, to, to);
    else if (bias)
      scale_columns(lane, spec_.rows, tensor.out, spec_.width, to, {}, bias, to);
  }
}

// With z = (W + s B A) x and y = g z, g = m / |W + s B A|, whose norm is treated as a constant (section 4.3 of the
// paper): dm = sum of dy z / |W + s B A| over the rows, and dz = g dy.
ConstView Linear::run_dora_backward(Lane& lane, const ParameterRange& parameters, ConstView x, ConstView dy,
                                    const GradientRange& gradients, const Dora& dora, const device::Dropout& dropout,
                                    View sums, ConstView squares) const {
  const View scratch = own_scratch(dora.rest);
  if (singles_.empty())
    run_products(lane, parameters, x, dora.product, scratch, {}, {});
  else
    run_dropped(lane, parameters, x, {}, dora, dropout);
  low_rank_->forward(lane, parameters, x, dora.product, dora.rest, scratch, dropout);
  run_norms(lane, parameters, dora, squares, scratch);
  std::size_t column = 0, left_in_sums = 0;
  for (const Tensor& tensor : spec_.tensors) left_in_sums += tensor.out * tensor.low_rank.rank;
  for (const Tensor& tensor : spec_.tensors) {
    if (tensor.low_rank.dora)
      column_dot(lane, spec_.rows, tensor.out, spec_.width, columns_from(dy, column), spec_.width,
                 columns_from(ConstView(dora.product), column), dora.norms.sub(column, tensor.out),
                 spec_.partial_output ? sums.sub(std::exchange(left_in_sums, left_in_sums + tensor.out), tensor.out)
                                      : gradients.sub(tensor.low_rank.magnitude, tensor.out),
                 scratch);
    column += tensor.out;
  }
  const View dz = scaled_gradient(dora);
  run_scales(lane, dora, dy, nullptr, dz);
  return dz;
}

void Linear::add_dropped(Lane& lane, const ParameterRange& parameters, ConstView dy, View dx, const Dora& dora,
                         View scratch, const device::Dropout& dropout) const {
  const View sum = dx.sub(0, spec_.rows * spec_.in);
  const View wide{dora.wide.data, sum.size, spec_.partial_input_gradient ? DType::fp32 : spec_.dtype};
  for (std::size_t i = 0; i < singles_.size(); ++i) {
    const Tensor& tensor = spec_.tensors[i];
    const Single& one = singles_[i];
    if (!tensor.low_rank.dora) continue;
    const View change = columns_from(scaled_gradient(dora), one.column);  // dz - dy
    scale_columns(lane, spec_.rows, tensor.out, spec_.width, columns_from(dy, one.column),
                  dora.scales.sub(one.column, tensor.out), {}, change, columns_from(dy, one.column), -1);
    one.input.run(lane, change, parameters.sub(tensor.weight, tensor.out * spec_.in), {}, wide, scratch, {});
    device::dropout(lane, of(i, dropout), wide, {}, wide);
    if (sum.dtype == DType::fp32)
      device::add(lane, wide, sum);
    else
      device::add_residual(lane, wide, sum, sum);
  }
}

}  // namespace strata::models
