#include "models/layers/linear/linear.h"

#include <algorithm>

#include "device/ops/activation.h"
#include "device/ops/dora.h"
#include "device/ops/elementwise.h"
#include "device/ops/products/product.h"
#include "models/layers/linear/products.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Epilogue;
using device::Lane;
using device::ProductShape;
using device::View;

View fp32_view(View scratch, std::size_t offset, std::size_t size) {
  return View{scratch.data + offset, size, DType::fp32};
}

View rest_of(View scratch, std::size_t offset) {
  return View{scratch.data + offset, (scratch.bytes() - offset) / size_of(scratch.dtype), scratch.dtype};
}

Epilogue gelu_epilogue(Gelu gelu) {
  return gelu == Gelu::none ? Epilogue::none : gelu == Gelu::erf ? Epilogue::gelu_erf : Epilogue::gelu_tanh;
}
Epilogue gelu_gradient_epilogue(Gelu gelu) {
  return gelu == Gelu::none  ? Epilogue::none
         : gelu == Gelu::erf ? Epilogue::gelu_erf_gradient
                             : Epilogue::gelu_tanh_gradient;
}

device::Activation activation(Gelu gelu) {
  return gelu == Gelu::erf ? device::Activation::gelu_erf : device::Activation::gelu_tanh;
}

double norm_flops(const Linear::Spec& spec) {
  double flops = 0;
  for (const Linear::Tensor& t : spec.tensors)
    if (t.low_rank.dora) flops += 2 * static_cast<double>(t.out * spec.in) * static_cast<double>(t.low_rank.rank + 1);
  return flops;
}

}  // namespace

Linear::Linear(const Spec& spec) : spec_(spec) {
  struct Run {
    std::size_t out, weight, column;
  };
  std::vector<Run> runs;
  for (const Tensor& tensor : spec_.tensors) {
    if (!runs.empty() && !spec_.input_major && runs.back().weight + runs.back().out * spec_.in == tensor.weight)
      runs.back().out += tensor.out;
    else
      runs.push_back({tensor.out, tensor.weight, out_});
    out_ += tensor.out;
  }
  const auto rows = static_cast<std::int64_t>(spec_.rows), in = static_cast<std::int64_t>(spec_.in);
  if (spec_.width == 0) spec_.width = out_;
  const auto all = static_cast<std::int64_t>(spec_.width);
  const DType t = spec_.dtype;
  const bool adapted =
      std::ranges::any_of(spec_.tensors, [](const Tensor& tensor) { return tensor.low_rank.rank > 0; });
  dora_ = std::ranges::any_of(spec_.tensors, [](const Tensor& tensor) { return tensor.low_rank.dora; });
  const bool bias = spec_.bias && !dora_;  // DoRA adds biases afterwards
  for (const Run& run : runs) {
    const auto n = static_cast<std::int64_t>(run.out);
    const std::int64_t ldw = spec_.input_major ? n : in;
    const bool sum = runs.size() > 1;
    const bool major = spec_.input_major;
    const Epilogue sums = !sums_biases() ? Epilogue::none : major ? Epilogue::sums_b : Epilogue::sums_a;
    const Epilogue after = adapted ? Epilogue::none : gelu_epilogue(spec_.gelu_after);
    const Epilogue before = sum || adapted ? Epilogue::none : gelu_gradient_epilogue(spec_.gelu_before);
    const DType y = product_dtype(), dx = sum || spec_.partial_input_gradient ? DType::fp32 : t;
    const ProductShape forward{rows, n, in, false, !major, in, ldw, all, t, y, bias, false, after};
    const ProductShape input{rows, in, n, false, major, all, ldw, in, t, dx, false, sum, before};
    const ProductShape weights = major ? ProductShape{in, n, rows, true, false, in, all, ldw, t, t, false, false, sums}
                                       : ProductShape{n, in, rows, true, false, all, in, ldw, t, t, false, false, sums};
    groups_.push_back({run.out, run.weight, run.column, device::Product(spec_.device, forward), {}, {}});
    Group& group = groups_.back();
    if (spec_.input_gradient) group.input.emplace(spec_.device, input);
    if (!is_frozen(run.weight)) group.weights.emplace(spec_.device, weights);
  }
  if (!adapted) return;
  for (std::size_t i = 0, at = 0; dora_ && spec_.adapter_dropout > 0 && i < spec_.tensors.size(); ++i) {
    const auto n = static_cast<std::int64_t>(spec_.tensors[i].out);
    const std::int64_t ldw = spec_.input_major ? n : in;
    const bool major = spec_.input_major;
    const DType y = product_dtype(), dx = spec_.partial_input_gradient ? DType::fp32 : t;
    singles_.push_back({at,
                        device::Product(spec_.device, {rows, n, in, false, !major, in, ldw, all, t, y, false, false}),
                        device::Product(spec_.device, {rows, in, n, false, major, all, ldw, in, t, dx, false, false})});
    at += spec_.tensors[i].out;
  }
  std::vector<LowRankProducts::Target> targets;
  std::size_t column = 0;
  for (const Tensor& tensor : spec_.tensors) {
    targets.push_back({column, tensor.out, tensor.low_rank});
    column += tensor.out;
  }
  using Full = LowRankProducts::Spec::Full;
  const DType input_sum = runs.size() > 1 || spec_.partial_input_gradient ? DType::fp32 : t;
  low_rank_.emplace(LowRankProducts::Spec{.rows = spec_.rows,
                                          .in = spec_.in,
                                          .out = spec_.width,
                                          .dtype = t,
                                          .input_sum = input_sum,
                                          .device = spec_.device,
                                          .dropout = spec_.adapter_dropout,
                                          .output = product_dtype(),
                                          .full = spec_.partial_output           ? Full::b
                                                  : spec_.partial_input_gradient ? Full::a
                                                                                 : Full::none,
                                          .input_gradient = spec_.input_gradient},
                    targets);
}

View Linear::own_scratch(View scratch) const {
  return low_rank_ ? rest_of(scratch, low_rank_->kept_bytes()) : scratch;
}

bool Linear::sums_biases() const {
  return spec_.bias && std::ranges::none_of(spec_.tensors, [](const Tensor& tensor) {
           return is_frozen(tensor.weight) || is_frozen(tensor.bias);
         });
}

std::size_t Linear::input_sum_bytes() const {
  const bool rounds = groups_.size() > 1 && spec_.input_gradient && !spec_.partial_input_gradient;
  return rounds ? aligned(spec_.rows * spec_.in * sizeof(float)) : 0;
}

std::size_t Linear::packed_bias_bytes() const {
  return spec_.bias && spec_.tensors.size() > 1 ? aligned(out_ * size_of(spec_.dtype)) : 0;
}

std::size_t Linear::scratch_bytes(int threads) const {
  std::size_t products = 0;
  for (const Group& g : groups_) {
    products = std::max(products, g.forward.workspace_bytes(threads));
    for (const auto* product : {&g.input, &g.weights})
      if (*product) products = std::max(products, (*product)->workspace_bytes(threads));
  }
  for (const Tensor& tensor : spec_.tensors)
    if (spec_.bias && !sums_biases() && !is_frozen(tensor.bias))
      products = std::max(products, device::column_sum_workspace(spec_.rows, tensor.out));
  if (low_rank_) products = std::max(products, low_rank_->scratch_bytes(threads));
  for (const Single& one : singles_)
    products = std::max({products, one.forward.workspace_bytes(threads), one.input.workspace_bytes(threads)});
  for (const Tensor& tensor : spec_.tensors)
    if (tensor.low_rank.dora)
      products = std::max(
          {products, device::dora_workspace(dora_shape(tensor)), device::column_sum_workspace(spec_.rows, tensor.out)});
  return std::max(packed_bias_bytes(), input_sum_bytes()) + products + (low_rank_ ? low_rank_->kept_bytes() : 0) +
         dora_bytes();
}

double Linear::forward_flops() const {
  double flops = (low_rank_ ? low_rank_->forward_flops() : 0) + norm_flops(spec_);
  for (const Group& g : groups_) flops += flops_of(g.forward) * (singles_.empty() ? 1 : 2);
  return flops;
}

double Linear::backward_flops() const {
  double flops = (low_rank_ ? low_rank_->backward_flops() : 0) + (dora_ ? forward_flops() : 0);
  if (squares() > 0) flops -= norm_flops(spec_);  // only forward computes the norms
  for (const Group& g : groups_)
    flops += (g.input ? flops_of(*g.input) * (singles_.empty() ? 1 : 2) : 0) + (g.weights ? flops_of(*g.weights) : 0);
  return flops;
}

void Linear::list_products(std::vector<ProductShape>& out) const {
  for (const Group& g : groups_) {
    out.push_back(g.forward.shape());
    if (dora_) out.push_back(g.forward.shape());
    for (const auto* product : {&g.input, &g.weights})
      if (*product) out.push_back((*product)->shape());
  }
  for (const Single& one : singles_) {
    out.push_back(one.forward.shape());
    if (spec_.input_gradient) out.push_back(one.input.shape());
  }
  if (low_rank_) low_rank_->list_products(out);
}

void Linear::run_gelu(Lane& lane, View y, View active) const {
  if (spec_.gelu_after == Gelu::none) return;
  device::activation_forward(lane, activation(spec_.gelu_after), y.sub(0, spec_.rows * out_),
                             active.sub(0, spec_.rows * out_));
}

// A product of one row reads W once and multiplies little, so it does not use a library's tiles.
void Linear::forward_row(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View scratch, View active,
                         const device::Dropout& dropout, const KeptScales& kept) const {
  const Dora dora = cut(scratch, kept);
  std::size_t column = 0;
  for (const Tensor& tensor : spec_.tensors) {
    const ConstView bias = spec_.bias && !dora_ ? parameters.sub(tensor.bias, tensor.out) : ConstView{};
    device::matvec(lane, {tensor.out, spec_.in, spec_.input_major},
                   parameters.sub(tensor.weight, tensor.out * spec_.in), x, bias, y.sub(column, tensor.out));
    column += tensor.out;
  }
  if (low_rank_) low_rank_->forward_row(lane, parameters, x, y, dora.rest, dropout);
  if (dora_) {
    if (!kept.computed) run_norms(lane, parameters, dora, {}, own_scratch(dora.rest));
    run_scales(lane, dora, y, &parameters, y);
  }
  run_gelu(lane, y, active);
}

void Linear::run_products(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View scratch,
                          ConstView bias, View active) const {
  for (const Group& g : groups_)
    g.forward.run(lane, x, parameters.sub(g.weight, g.out * spec_.in), bias ? bias.sub(g.column, g.out) : bias,
                  columns_from(y, g.column), scratch, active ? columns_from(active, g.column) : View{});
}

void Linear::forward(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View whole_scratch, View active,
                     const device::Dropout& dropout, ConstView squares, const KeptScales& kept) const {
  if (spec_.rows == 1 && singles_.empty() && !spec_.partial_output)
    return forward_row(lane, parameters, x, y, whole_scratch, active, dropout, kept);
  const Dora dora = cut(whole_scratch, kept);
  if (!singles_.empty()) {
    STRATA_CHECK(!kept.scales);  // a run that generates has no dropout
    forward_dropped(lane, parameters, x, y, dora, dropout, squares);
    return run_gelu(lane, y, active);
  }
  const View scratch = own_scratch(dora.rest);
  ConstView bias;
  if (spec_.bias && !dora_ && spec_.tensors.size() == 1) {
    bias = parameters.sub(spec_.tensors[0].bias, out_);
  } else if (spec_.bias && !dora_) {
    // Biases are shorter than the alignment of parameters, so they are packed side by side.
    const View packed{scratch.data, out_, spec_.dtype};
    std::size_t column = 0;
    for (const Tensor& tensor : spec_.tensors) {
      device::cast(lane, parameters.sub(tensor.bias, tensor.out), packed.sub(column, tensor.out));
      column += tensor.out;
    }
    bias = packed;
  }
  const View rest = rest_of(scratch, packed_bias_bytes());
  run_products(lane, parameters, x, y, rest, bias, low_rank_ ? View{} : active);
  if (!low_rank_) return;
  low_rank_->forward(lane, parameters, x, y, dora.rest, scratch, dropout);
  if (dora_) {
    if (!kept.computed) run_norms(lane, parameters, dora, squares, scratch);
    run_scales(lane, dora, y, &parameters, y);
  }
  run_gelu(lane, y, active);
}

void Linear::backward(Lane& lane, const ParameterRange& parameters, ConstView x, ConstView dy, View dx,
                      const GradientRange& gradients, View whole_scratch, ConstView inactive,
                      const device::Dropout& dropout, View sums, ConstView squares) const {
  const Dora dora = cut(whole_scratch);
  const ConstView dz = dora_ ? run_dora_backward(lane, parameters, x, dy, gradients, dora, dropout, sums, squares) : dy;
  const View scratch = dora.rest;
  backward_parameters(lane, x, dy, gradients, own_scratch(scratch));
  if (low_rank_)
    low_rank_->backward_parameters(lane, parameters, x, dz, gradients, scratch, own_scratch(scratch), dropout, sums);
  if (!spec_.input_gradient) return;
  const bool drops = !singles_.empty();
  input_gradient(lane, parameters, drops ? dy : dz, dx, scratch, inactive, dropout, drops ? &dora : nullptr);
}

void Linear::backward_input(Lane& lane, const ParameterRange& parameters, ConstView dy, View dx, View scratch,
                            ConstView inactive, const device::Dropout& dropout) const {
  input_gradient(lane, parameters, dy, dx, scratch, inactive, dropout, nullptr);
}

void Linear::input_gradient(Lane& lane, const ParameterRange& parameters, ConstView dy, View dx, View whole_scratch,
                            ConstView inactive, const device::Dropout& dropout, const Dora* dora) const {
  const bool several = groups_.size() > 1;
  const View scratch = own_scratch(whole_scratch);
  const bool rounds = several && !spec_.partial_input_gradient;
  const View target = rounds ? fp32_view(scratch, 0, spec_.rows * spec_.in) : dx;
  const View rest = rest_of(scratch, input_sum_bytes());
  if (several) device::zero(lane, target);
  for (const Group& g : groups_)
    g.input->run(lane, columns_from(dy, g.column), parameters.sub(g.weight, g.out * spec_.in), {}, target, rest, {},
                 several || low_rank_ ? ConstView{} : inactive);
  if (low_rank_) low_rank_->backward_input(lane, parameters, target, whole_scratch, rest, dropout);
  if (dora) add_dropped(lane, parameters, dy, target, *dora, rest, dropout);
  if (!several && !low_rank_) return;
  if (rounds) device::cast(lane, target, dx);
  if (spec_.gelu_before == Gelu::none) return;
  device::activation_backward(lane, activation(spec_.gelu_before), dx, inactive, dx);
}

void Linear::backward_parameters(Lane& lane, ConstView x, ConstView dy, const GradientRange& gradients,
                                 View scratch) const {
  const bool sums = sums_biases(), packs = sums && packed_bias_bytes() > 0;
  const View biases = packs  ? View{scratch.data, out_, spec_.dtype}
                      : sums ? gradients.sub(spec_.tensors[0].bias, out_)
                             : View{};
  const View rest = packs ? rest_of(scratch, packed_bias_bytes()) : scratch;
  for (const Group& g : groups_) {
    if (!g.weights) continue;
    const ConstView dy_group = columns_from(dy, g.column);
    g.weights->run(lane, spec_.input_major ? x : dy_group, spec_.input_major ? dy_group : x, {},
                   gradients.sub(g.weight, g.out * spec_.in), rest, sums ? biases.sub(g.column, g.out) : View{});
  }
  if (!sums) return backward_biases(lane, dy, gradients, scratch);
  if (!packs) return;
  std::size_t column = 0;
  for (const Tensor& tensor : spec_.tensors) {
    device::cast(lane, biases.sub(column, tensor.out), gradients.sub(tensor.bias, tensor.out));
    column += tensor.out;
  }
}

void Linear::backward_biases(Lane& lane, ConstView dy, const GradientRange& gradients, View scratch) const {
  std::size_t column = 0;
  for (const Tensor& tensor : spec_.tensors) {
    if (const View db = spec_.bias ? gradients.sub(tensor.bias, tensor.out) : View{})
      column_sum(lane, spec_.rows, tensor.out, spec_.width, columns_from(dy, column), db, scratch);
    column += tensor.out;
  }
}

}  // namespace strata::models
