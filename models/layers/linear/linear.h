#pragma once
// models/layers/linear/ holds linear layers (this header), with low-rank adapters and in virtual shards
// (split_linear.h).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/lane.h"
#include "device/ops/dora.h"
#include "device/ops/elementwise.h"
#include "device/ops/products/product.h"
#include "device/view.h"
#include "models/adapter.h"
#include "models/flat_range.h"

namespace strata::models {

// The contribution of adapters to a linear layer y = x W: y += s (x A^T) B^T for each of the layer's tensors with an
// adapter. A is [rank, in] and B [out, rank], however W is stored. Adapters with adjacent A and equal scale share the
// product that reads x, unless there is dropout. Prepared once per shape.
class LowRankProducts {
 public:
  struct Target {
    std::size_t column, out;  // the target's first column of y, and the number of its columns
    LowRank at;
  };
  struct Spec {
    std::size_t rows, in, out;       // out: the distance between rows of y
    device::DType dtype, input_sum;  // dtype: of all operands; input_sum: of the dx to which backward() adds
    device::Device device = {};
    float dropout = 0;             // dropout of the input of A; target i uses the first site + i
    device::DType output = dtype;  // dtype of the y to which forward() adds
    // The factor that is not cut, if the layer is computed in virtual shards. Its gradient is a sum over shards;
    // backward_parameters() leaves this shard's part in fp32.
    enum class Full : std::uint8_t { none, a, b } full = Full::none;
    bool input_gradient = true;  // false: backward_input() is not called
  };
  // Targets of rank 0 have no adapter.
  LowRankProducts(const Spec& spec, std::span<const Target> targets);

  bool empty() const { return groups_.empty(); }
  // kept_bytes(): live from backward_parameters() to backward_input(). scratch_bytes(): the additional scratch of any
  // call, in a lane of `threads` threads.
  std::size_t kept_bytes() const;
  std::size_t scratch_bytes(int threads) const;
  double forward_flops() const;
  double backward_flops() const;
  void list_products(std::vector<device::ProductShape>& out) const;

  // Adds to y[rows, out].
  void forward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y, device::View kept,
               device::View scratch, const device::Dropout& dropout = {}) const;
  // The same for a single row.
  void forward_row(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y,
                   device::View kept, const device::Dropout& dropout = {}) const;
  // Computes dA and dB, and leaves s dy B in `kept`. The gradients of full factors go to `sums`, in the order of the
  // targets.
  void backward_parameters(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::ConstView dy,
                           const GradientRange& gradients, device::View kept, device::View scratch,
                           const device::Dropout& dropout = {}, device::View sums = {}) const;
  // Adds (s dy B) A to dx, of dtype Spec::input_sum.
  void backward_input(device::Lane&, const ParameterRange& parameters, device::View dx, device::View kept,
                      device::View scratch, const device::Dropout& dropout = {}) const;

 private:
  struct Member {
    Target target;
    std::size_t first;  // first of its rank columns in the group
    device::Product up, d_b, d_down;
  };
  struct Group {
    std::size_t a, rank, offset;  // offset: of its columns in `kept`, in elements
    float scale;
    std::uint32_t number;  // the number of its first target
    device::Product down, d_a;
    std::optional<device::Product> input;
    std::vector<Member> members;
  };
  // The thin matrix [rows, group.rank]: x A^T, or in backward also s dy B.
  device::View thin(const Group& group, device::View kept, bool gradient) const;
  // Computes s x A^T, and returns the x that A multiplies, that is, x after dropout.
  device::ConstView run_down(device::Lane&, const Group& group, const ParameterRange& parameters, device::ConstView x,
                             device::View kept, device::View scratch, const device::Dropout& dropout) const;
  device::Dropout of(const Group& group, device::Dropout dropout) const;
  // A matrix like x: x after dropout or, in backward, its gradient through one adapter.
  device::View wide(device::View kept, device::DType dtype) const;

  Spec spec_;
  std::size_t columns_ = 0;  // columns of all groups, each rounded up to a cache line
  std::vector<Group> groups_;
};

// The kind of GELU: the tanh approximation, or the exact one (erf).
enum class Gelu : std::uint8_t { none, tanh, erf };

// DoRA's scales of a layer's outputs, fp32 [Linear::scales()], in memory that outlives the call: computed by it, or by
// an earlier one with the same parameters. Empty: the call computes them in its scratch.
struct KeptScales {
  device::View scales = {};
  bool computed = false;
};

// y[rows, out] = x[rows, in] W (+ b). W may consist of several tensors whose outputs lie side by side (q, k, v; gate,
// up). A GELU before or after can be part of the products. Prepared once per shape and shared by all blocks.
class Linear {
 public:
  // The place of one tensor in the unit's pools.
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
    bool input_major;  // W is stored [in, out] (GPT-2's Conv1D) instead of [out, in]
    device::DType dtype;
    device::Device device = {};
    Gelu gelu_after = Gelu::none;   // forward also returns gelu(y)
    Gelu gelu_before = Gelu::none;  // x is the output of a gelu: backward_input returns the gradient of its input
    float adapter_dropout = 0;      // dropout of the input of adapters
    // y (or dx) is a partial result, to be added over virtual shards: fp32, not rounded. An adapter's B (or A) is then
    // whole.
    bool partial_output = false, partial_input_gradient = false;
    std::size_t width = 0;       // the distance between rows of y, in elements; 0: the width of the tensors' outputs
    bool input_gradient = true;  // false: backward() computes no dx
  };
  explicit Linear(const Spec& spec);

  std::size_t out() const { return out_; }
  // The maximum scratch bytes of the calls below, in a lane of `threads` threads.
  std::size_t scratch_bytes(int threads) const;

  // FLOPs of one forward and of one backward, including adapters. Frozen tensors have no weight gradients.
  double forward_flops() const;
  double backward_flops() const;
  // Adds the products of one forward and backward.
  void list_products(std::vector<device::ProductShape>& out) const;

  // Computes y, including adapters, and active[rows, out] = gelu(y) if a GELU follows. `dropout` is the first tensor's
  // adapter dropout; the other tensors use the following sites. `squares`: see squares().
  void forward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y,
               device::View scratch, device::View active = {}, const device::Dropout& dropout = {},
               device::ConstView squares = {}, const KeptScales& kept = {}) const;
  // Computes all gradients: dW and db, dA and dB, then dx if it is wanted. Frozen tensors have none. If results are
  // partial, leaves the gradients of adapters' whole factors, then those of whole magnitudes, in `sums`, in fp32 and in
  // the order of the tensors.
  void backward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::ConstView dy,
                device::View dx, const GradientRange& gradients, device::View scratch, device::ConstView inactive = {},
                const device::Dropout& dropout = {}, device::View sums = {}, device::ConstView squares = {}) const;
  // The two halves of backward(), for a layer without adapters.
  // dx[rows, in] = dy W^T, multiplied by gelu'(inactive[rows, in]) if a GELU comes before.
  void backward_input(device::Lane&, const ParameterRange& parameters, device::ConstView dy, device::View dx,
                      device::View scratch, device::ConstView inactive = {}, const device::Dropout& dropout = {}) const;
  // dW = x^T dy and db = the column sums of dy, at the places of W and b in `gradients`, except for frozen tensors.
  void backward_parameters(device::Lane&, device::ConstView x, device::ConstView dy, const GradientRange& gradients,
                           device::View scratch) const;

  // The number of DoRA's scales; 0: no adapter has them.
  std::size_t scales() const { return dora_ ? out_ : 0; }
  // If the output is partial, DoRA's squared norms are sums over shards: write_partial_squares() leaves this shard's
  // part of |W
  // + s B A|^2 in `to`, fp32 [squares()], and forward() and backward() take the sums. Otherwise squares() is 0.
  std::size_t squares() const { return dora_ && spec_.partial_output ? out_ : 0; }
  void write_partial_squares(device::Lane&, const ParameterRange& parameters, device::View to,
                             device::View scratch) const;

 private:
  // Tensors whose weights are adjacent, and either all trained or all frozen: one product.
  struct Group {
    std::size_t out, weight, column;
    device::Product forward;
    std::optional<device::Product> input, weights;  // none: dx is not wanted; the weights are frozen
  };
  void forward_row(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y,
                   device::View scratch, device::View active, const device::Dropout& dropout,
                   const KeptScales& kept) const;
  // For DoRA, the start of the scratch: norms and scales of all outputs in fp32, a matrix of y's shape and, with
  // dropout, one of x's.
  struct Dora {
    device::View norms, scales, product, wide, rest;
  };
  // The product of one tensor, if dropout gives each tensor its own input.
  struct Single {
    std::size_t column;
    device::Product forward, input;
  };
  device::DoraShape dora_shape(const Tensor& tensor) const;
  std::size_t dora_bytes() const;
  Dora cut(device::View scratch, const KeptScales& kept = {}) const;
  device::DType product_dtype() const { return spec_.partial_output ? device::DType::fp32 : spec_.dtype; }
  // dora.product, reused for the gradients of the values that the scales multiply, in the compute dtype.
  device::View scaled_gradient(const Dora& dora) const { return {dora.product.data, dora.product.size, spec_.dtype}; }
  void run_products(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y,
                    device::View scratch, device::ConstView bias, device::View active) const;
  // Computes |W + s B A| of each output, and the output's magnitude divided by this norm.
  void run_norms(device::Lane&, const ParameterRange& parameters, const Dora& dora, device::ConstView squares,
                 device::View scratch) const;
  // out = x times the scales, plus the biases if `biases` is not null.
  void run_scales(device::Lane&, const Dora& dora, device::ConstView x, const ParameterRange* biases,
                  device::View out) const;
  // Computes the gradients of magnitudes; returns the gradient of the values that the scales multiply.
  device::ConstView run_dora_backward(device::Lane&, const ParameterRange& parameters, device::ConstView x,
                                      device::ConstView dy, const GradientRange& gradients, const Dora& dora,
                                      const device::Dropout& dropout, device::View sums,
                                      device::ConstView squares) const;
  // With dropout: y = W (x - x') + g z + b and z = (W + s B A) x', where x' is what dropout leaves of x, as in peft.
  void forward_dropped(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y,
                       const Dora& dora, const device::Dropout& dropout, device::ConstView squares) const;
  // Writes W x' to dora.product, and W (x - x') to y unless y is empty.
  void run_dropped(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y,
                   const Dora& dora, const device::Dropout& dropout) const;
  // Implements backward_input(). `dora`: null unless the layer has DoRA and dropout.
  void input_gradient(device::Lane&, const ParameterRange& parameters, device::ConstView dy, device::View dx,
                      device::View scratch, device::ConstView inactive, const device::Dropout& dropout,
                      const Dora* dora) const;
  // Adds (dz - dy) W to dx, after dropout.
  void add_dropped(device::Lane&, const ParameterRange& parameters, device::ConstView dy, device::View dx,
                   const Dora& dora, device::View scratch, const device::Dropout& dropout) const;
  device::Dropout of(std::size_t tensor, device::Dropout dropout) const;
  void run_gelu(device::Lane&, device::View y, device::View active) const;
  // The scratch of the layer without its adapters.
  device::View own_scratch(device::View scratch) const;
  std::size_t input_sum_bytes() const;    // fp32 sum of several groups' dx; 0 with one group
  std::size_t packed_bias_bytes() const;  // biases of several tensors, or their gradients, side by side
  // True if the products of weight gradients also sum bias gradients: all weights and biases are trained. Otherwise
  // separate operations sum the gradients of trained biases.
  bool sums_biases() const;
  void backward_biases(device::Lane&, device::ConstView dy, const GradientRange& gradients, device::View scratch) const;

  Spec spec_;
  std::size_t out_ = 0;
  bool dora_ = false;
  std::vector<Single> singles_;  // one per tensor; none unless DoRA has dropout
  std::vector<Group> groups_;
  std::optional<LowRankProducts> low_rank_;  // its kept bytes are at the start of the scratch
};

}  // namespace strata::models
