#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/lane.h"
#include "device/ops/products/product.h"
#include "device/view.h"
#include "models/flat_range.h"
#include "models/layers/low_rank_products.h"

namespace strata::models {

// Which GELU: the tanh approximation, or the exact one with the normal distribution.
enum class Gelu : std::uint8_t { none, tanh, erf };

// y[rows, out] = x[rows, in] W (+ b). W's outputs may be several tensors side by side (q, k, v; gate, up), and a GELU
// before or after is part of the same products. Prepared once per shape and shared by all blocks.
class Linear {
 public:
  // Where one tensor lies in the unit's pools.
  struct Tensor {
    std::size_t out;
    std::size_t weight;
    std::size_t bias = 0;
    LowRank low_rank = {};  // its adapter, if it has one
  };
  struct Spec {
    std::size_t rows, in;
    std::vector<Tensor> tensors;
    bool bias;
    bool input_major;  // W is stored [in, out] (GPT-2's Conv1D), otherwise [out, in]
    device::DType dtype;
    device::Device device = {};
    Gelu gelu_behind = Gelu::none;  // forward also returns gelu(y)
    Gelu gelu_before = Gelu::none;  // x is the output of a gelu: backward_input returns the gradient of its input
    float adapter_dropout = 0;      // of what adapters multiply
  };
  explicit Linear(const Spec& spec);

  std::size_t out() const { return out_; }
  // The most scratch bytes that any call below needs in a lane of `threads` threads.
  std::size_t scratch_bytes(int threads) const;

  // Of one forward's products; of one backward's, in which frozen tensors have none of their own.
  double forward_flops() const;
  double backward_flops() const;
  // Adds the products of one forward and backward.
  void list_products(std::vector<device::ProductShape>& out) const;

  // With what adapters add. active[rows, out] = gelu(y), if a gelu follows. `dropout` is of the first tensor's adapter;
  // the sites of the others follow.
  void forward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y,
               device::View scratch, device::View active = {}, const device::Dropout& dropout = {}) const;
  // All gradients: dW and db, dA and dB, then dx. What is frozen has none.
  void backward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::ConstView dy,
                device::View dx, const GradientRange& gradients, device::View scratch, device::ConstView inactive = {},
                const device::Dropout& dropout = {}) const;
  // Of a layer without adapters, one by one.
  // dx[rows, in] = dy W^T; with a gelu before it, multiplied by gelu'(inactive[rows, in]).
  void backward_input(device::Lane&, const ParameterRange& parameters, device::ConstView dy, device::View dx,
                      device::View scratch, device::ConstView inactive = {}, const device::Dropout& dropout = {}) const;
  // dW = x^T dy and db = the column sums of dy, into the places of W and b in `gradients`; not of what is frozen.
  void backward_parameters(device::Lane&, device::ConstView x, device::ConstView dy, const GradientRange& gradients,
                           device::View scratch) const;

 private:
  // Neighbouring tensors without a gap between their weights, all of them trained or none: one product.
  struct Group {
    std::size_t out, weight, column;
    device::Product forward, input;
    std::optional<device::Product> weights;  // none: frozen
  };
  void forward_row(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y,
                   device::View scratch, device::View active, const device::Dropout& dropout) const;
  void run_gelu(device::Lane&, device::View y, device::View active) const;
  // The scratch that the layer without its adapters uses.
  device::View own_scratch(device::View scratch) const;
  std::size_t input_sum_bytes() const;    // fp32 sum of several groups' dx; 0 with one group
  std::size_t packed_bias_bytes() const;  // biases of several tensors, or their gradients, side by side
  // Whether the products of weights sum up the gradients of biases: if all of both are trained. Else biases that are
  // have sums of their own.
  bool sums_biases() const;
  void backward_biases(device::Lane&, device::ConstView dy, const GradientRange& gradients, device::View scratch) const;

  Spec spec_;
  std::size_t out_ = 0;
  std::vector<Group> groups_;
  std::optional<LowRankProducts> low_rank_;  // its kept bytes are the first of the scratch
};

// The most scratch bytes that any call on any of them needs in a lane of `threads` threads.
std::size_t scratch_bytes(std::span<const Linear* const> linears, int threads);

}  // namespace strata::models
