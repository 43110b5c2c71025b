#include "models/layers/heads/head_input.h"

#include <algorithm>

#include "device/ops/activation.h"

namespace strata::models {

using device::ConstView;
using device::Lane;
using device::View;

void HeadInput::set_transform(const Linear::Tensor& tensor, bool biased, const RunShape& run) {
  transform_.emplace(Linear::Spec{.rows = rows(),
                                  .in = hidden_,
                                  .tensors = {tensor},
                                  .bias = biased,
                                  .input_major = false,
                                  .dtype = run.dtype,
                                  .device = run.device,
                                  .gelu_after = Gelu::erf,
                                  .adapter_dropout = run.adapter_dropout()});
}

std::size_t HeadInput::scratch_bytes(int threads) const {
  const std::size_t most = std::max(norm_->scratch_bytes(), taken_.scratch_bytes());
  return transform_ ? std::max(most, transform_->scratch_bytes(threads)) : most;
}

void HeadInput::list_products(std::vector<device::ProductShape>& out) const {
  if (transform_) transform_->list_products(out);
}

double HeadInput::flops(bool forward, bool backward) const {
  if (!transform_) return 0;
  return (forward ? transform_->forward_flops() : 0) + (backward ? transform_->backward_flops() : 0);
}

ConstView HeadInput::taken(const Context& c, const HeadPlaces& p, ConstView x) const {
  return picks() ? ConstView(p.picked.of(c.workspace)) : x;
}

ConstView HeadInput::entered(const Context& c, const HeadPlaces& p, ConstView x) const {
  return entry_norm_ ? ConstView(p.entered.of(c.workspace)) : taken(c, p, x);
}

ConstView HeadInput::unnormed(const Context& c, const HeadPlaces& p, ConstView x) const {
  return transform_ ? ConstView(p.active.of(c.workspace)) : taken(c, p, x);
}

void HeadInput::forward(Lane& lane, const Context& c, const HeadPlaces& p, ConstView x,
                        const device::Dropout& adapter_dropout) const {
  const View no_bias = p.no_bias.of(c.workspace);
  const ConstView taken = taken_.pick(lane, c, x, p.picked.of(c.workspace));
  if (entry_norm_)
    entry_norm_->forward(lane, c.parameters, taken, p.entered.of(c.workspace), p.entry_mean.of(c.workspace),
                         p.entry_rstd.of(c.workspace), no_bias);
  if (transform_)
    transform_->forward(lane, c.parameters, entered(c, p, x), p.inner.of(c.workspace), p.scratch.of(c.workspace),
                        p.active.of(c.workspace), adapter_dropout);
  norm_->forward(lane, c.parameters, unnormed(c, p, x), p.normed.of(c.workspace), p.mean.of(c.workspace),
                 p.rstd.of(c.workspace), no_bias);
}

void HeadInput::backward(Lane& lane, const Context& c, const HeadPlaces& p, ConstView x, ConstView d_norm, View dx,
                         const GradientRange& gradients, const device::Dropout& adapter_dropout) const {
  const View scratch = p.scratch.of(c.workspace), no_bias = p.no_bias.of(c.workspace);
  // The norm's output, and from then on its input, are not read again.
  const View d_unnormed = transform_ || picks() ? p.normed.of(c.workspace) : dx;
  const View d_taken = !picks()      ? dx
                       : entry_norm_ ? p.entered.of(c.workspace)
                       : transform_  ? p.active.of(c.workspace)
                                     : d_unnormed;
  norm_->backward(lane, c.parameters, d_norm, unnormed(c, p, x), p.mean.of(c.workspace), p.rstd.of(c.workspace), {},
                  d_unnormed, gradients, scratch, no_bias);
  const View d_entered = entry_norm_ ? p.active.of(c.workspace) : d_taken;
  if (transform_) {
    activation_backward(lane, device::Activation::gelu_erf, d_unnormed, p.inner.of(c.workspace), d_unnormed);
    transform_->backward(lane, c.parameters, entered(c, p, x), d_unnormed, d_entered, gradients, scratch, {},
                         adapter_dropout);
  }
  if (entry_norm_)
    entry_norm_->backward(lane, c.parameters, d_entered, taken(c, p, x), p.entry_mean.of(c.workspace),
                          p.entry_rstd.of(c.workspace), {}, d_taken, gradients, scratch, no_bias);
  if (picks()) taken_.put_back(lane, c, d_taken, dx, scratch);
}

}  // namespace strata::models
