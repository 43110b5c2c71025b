#include "models/layers/norm_part.h"

#include "device/ops/elementwise.h"

namespace strata::models {

using device::ConstView;
using device::Lane;
using device::View;

NormPart::NormPart(NormKind kind, const device::NormShape& shape, std::size_t gain, std::size_t bias)
    : kind_(kind), shape_(shape), gain_(gain), bias_(bias) {}

std::size_t NormPart::unwanted_bytes() const {
  const bool unwanted = is_frozen(gain_) || (kind_ == NormKind::layer && is_frozen(bias_));
  return unwanted ? shape_.width * sizeof(float) : 0;
}

void NormPart::forward(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View mean, View rstd,
                       View no_bias) const {
  const ConstView gain = parameters.sub(gain_, shape_.width);
  if (kind_ == NormKind::root_mean_square) return rmsnorm_forward(lane, shape_, x, gain, y, rstd);
  if (kind_ == NormKind::layer_without_bias) zero(lane, no_bias);
  layernorm_forward(lane, shape_, x, gain,
                    kind_ == NormKind::layer ? parameters.sub(bias_, shape_.width) : ConstView(no_bias), y, mean, rstd);
}

void NormPart::backward(Lane& lane, const ParameterRange& parameters, ConstView dy, ConstView x, ConstView mean,
                        ConstView rstd, ConstView dresidual, View dx, const GradientRange& gradients, View scratch,
                        View no_bias) const {
  const ConstView gain = parameters.sub(gain_, shape_.width);
  const auto gradient_of = [&](std::size_t tensor) {
    if (!is_frozen(tensor)) return gradients.sub(tensor, shape_.width);
    const std::size_t there = scratch.bytes() - unwanted_at();
    return View{scratch.data + unwanted_at(), there / size_of(dy.dtype), dy.dtype}.sub(0, shape_.width);
  };
  const View d_gain = gradient_of(gain_);
  if (kind_ == NormKind::root_mean_square)
    return rmsnorm_backward(lane, shape_, dy, x, gain, rstd, dresidual, dx, d_gain, scratch);
  layernorm_backward(lane, shape_, dy, x, gain, mean, rstd, dresidual, dx, d_gain,
                     kind_ == NormKind::layer ? gradient_of(bias_) : no_bias, scratch);
}

}  // namespace strata::models
