#pragma once
#include <cstddef>
#include <string>

#include "device/lane.h"
#include "models/layers/linear/linear.h"
#include "models/model.h"

namespace strata::models {

struct PredictionTransformSpec {
  std::string name;  // the dense layer's name, without ".weight" and ".bias"
  float deviation;
  bool bias = true;
  std::string entry_gain = {};  // the head has a LayerNorm without a bias before it; none if empty
};

// A masked language model's step between its last block and the head's norm and projection: y = gelu(x W + b), with b
// if there is one, and the GELU of erf. This is a piece of the head: its tensors lie in the head's flat buffer.
class PredictionTransform {
 public:
  // `tensor`: the place of the dense layer in that buffer; `rows`: rows per call.
  PredictionTransform(std::size_t rows, std::size_t hidden, const Linear::Tensor& tensor, bool biased,
                      const RunShape& run);

  std::size_t scratch_bytes(int threads) const { return dense_.scratch_bytes(threads); }
  double forward_flops() const { return dense_.forward_flops(); }
  double backward_flops() const { return dense_.backward_flops(); }
  void list_products(std::vector<device::ProductShape>& out) const { dense_.list_products(out); }

  // All [rows, hidden]; inner: x W + b, which backward needs.
  void forward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View inner, device::View y,
               device::View scratch, const device::Dropout& adapter_dropout = {}) const;
  // Replaces dy by the gradient of inner.
  void backward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::ConstView inner,
                device::View dy, device::View dx, const GradientRange& gradients, device::View scratch,
                const device::Dropout& adapter_dropout = {}) const;

 private:
  Linear dense_;
};

}  // namespace strata::models
