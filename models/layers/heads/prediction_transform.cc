#include "models/layers/heads/prediction_transform.h"

#include "device/ops/activation.h"

namespace strata::models {

PredictionTransform::PredictionTransform(std::size_t rows, std::size_t hidden, std::size_t weight,
                                         std::optional<std::size_t> bias, const RunShape& run)
    : dense_({rows,
              hidden,
              {{hidden, weight, bias.value_or(0)}},
              bias.has_value(),
              false,
              run.dtype,
              run.device,
              Gelu::erf}) {}

void PredictionTransform::forward(device::Lane& lane, const ParameterRange& parameters, device::ConstView x,
                                  device::View inner, device::View y, device::View scratch) const {
  dense_.forward(lane, parameters, x, inner, scratch, y);
}

void PredictionTransform::backward(device::Lane& lane, const ParameterRange& parameters, device::ConstView x,
                                   device::ConstView inner, device::View dy, device::View dx,
                                   const GradientRange& gradients, device::View scratch) const {
  gelu_erf_backward(lane, dy, inner, dy);
  dense_.backward_parameters(lane, x, dy, gradients, scratch);
  dense_.backward_input(lane, parameters, dy, dx, scratch);
}

}  // namespace strata::models
