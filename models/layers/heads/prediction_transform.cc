#include "models/layers/heads/prediction_transform.h"

#include "device/ops/activation.h"

namespace strata::models {

PredictionTransform::PredictionTransform(std::size_t rows, std::size_t hidden, const Linear::Tensor& tensor,
                                         bool biased, const RunShape& run)
    : dense_({rows,
              hidden,
              {tensor},
              biased,
              false,
              run.dtype,
              run.device,
              Gelu::erf,
              Gelu::none,
              run.adapter_dropout()}) {}

void PredictionTransform::forward(device::Lane& lane, const ParameterRange& parameters, device::ConstView x,
                                  device::View inner, device::View y, device::View scratch,
                                  const device::Dropout& adapter_dropout) const {
  dense_.forward(lane, parameters, x, inner, scratch, y, adapter_dropout);
}

void PredictionTransform::backward(device::Lane& lane, const ParameterRange& parameters, device::ConstView x,
                                   device::ConstView inner, device::View dy, device::View dx,
                                   const GradientRange& gradients, device::View scratch,
                                   const device::Dropout& adapter_dropout) const {
  activation_backward(lane, device::Activation::gelu_erf, dy, inner, dy);
  dense_.backward(lane, parameters, x, dy, dx, gradients, scratch, {}, adapter_dropout);
}

}  // namespace strata::models
