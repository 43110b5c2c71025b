#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/lane.h"
#include "device/view.h"
#include "models/flat_range.h"
#include "models/layers/linear/linear.h"
#include "models/parameter.h"

namespace strata::models {

// The recipe key that sets this number of shards, for messages: "parallel.tensor = 4" if each rank has one of four (the
// default of parallel.tensor_shards), else "parallel.tensor_shards = 4".
std::string key_text(const ShardRange& shards);

// The side of a linear layer that virtual shards divide.
enum class CutSide : std::uint8_t { outputs, inputs };

// A linear layer that is computed in V virtual shards, each of which is a Linear with a piece of W, as in Megatron-LM
// (Shoeybi et al. 2019). A matrix that is cut is stored as a stack of the shards' matrices: [V, rows, features / V]. If
// outputs are cut, y is such a stack and dx is the sum of V products. If inputs are cut, x is such a stack, y is the
// sum of V products, and the bias is whole. A sum adds fp32 results by a balanced binary tree and rounds once, so its
// bits do not depend on how many ranks compute it. With one shard, a SplitLinear is the Linear itself.
//
// If ranks share the layer, each computes neighbouring shards, so its stacks contain only those. A sum over shards is
// then the rank's partial sum, in fp32 and without the bias. Adding the partial sums of all ranks by the same tree, and
// then the bias, gives the result. If outputs are cut, the gradients of the layer's tensors then have a separate call,
// so the exchange of dx need not wait for them.
class SplitLinear {
 public:
  // The places of the layer's tensors: the pieces of each of this rank's shards and, if inputs are cut, the bias, which
  // is whole. `first`: the index of this rank's first shard. `of`: the number of all ranks' shards; 0: there are no
  // others. If only the first of `sharers` neighbouring shards has all tensors (Slice::sharers), `complete` lists its
  // tensors. The others have only the first `everywhere` of these; in their lists, `out` is 0 for the rest.
  struct Offsets {
    std::vector<std::vector<Linear::Tensor>> shards;
    std::optional<std::size_t> bias = {};
    std::size_t first = 0, of = 0;
    std::size_t sharers = 1, everywhere = 0;
    std::vector<Linear::Tensor> complete = {};
  };
  SplitLinear(Linear full);  // NOLINT(google-explicit-constructor): one shard
  // `spec` describes the whole layer, without its tensors. With several shards, an adapter's factor on the cut side is
  // cut too, and the other factor is whole: by linearity, each shard adds its part of the adapter to its part of the
  // layer, and the gradient of the whole factor is a sum over shards. DoRA's magnitudes are cut with the outputs. If
  // inputs are cut, the magnitudes and the norms that divide them are whole. Throws Error{usage} if an adapter has
  // dropout on rows whose length is not a multiple of 4.
  SplitLinear(CutSide side, Linear::Spec spec, const Offsets& offsets);

  std::size_t shards() const { return shards_.size(); }  // the number of this rank's shards
  std::size_t out() const;                               // the outputs of these shards
  // The offset of the bias that must be added to the sum of all ranks' partial sums.
  const std::optional<std::size_t>& bias() const { return bias_; }
  // As in Linear, but independent of the rank's shards: FLOPs are an average shard's.
  std::size_t scratch_bytes(int threads) const;
  double forward_flops() const;
  double backward_flops() const;
  void list_products(std::vector<device::ProductShape>& out) const;
  void forward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y,
               device::View scratch, device::View active = {}, const device::Dropout& dropout = {},
               device::ConstView squares = {}, const KeptScales& kept = {}) const;
  // The number of DoRA's scales that forward() can keep. If inputs are cut, they follow from squares() alone.
  std::size_t scales() const;
  void backward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::ConstView dy,
                device::View dx, const GradientRange& gradients, device::View scratch, device::ConstView inactive = {},
                const device::Dropout& dropout = {}, device::View sums = {}, device::ConstView squares = {}) const;
  // If inputs are cut: the number of DoRA's squared norms that are sums over shards (Linear::squares).
  // write_partial_squares() leaves the part of this rank's shard `v`; forward() and backward() take the sums over all
  // ranks' shards.
  std::size_t squares() const { return shards_[0].squares(); }
  void write_partial_squares(device::Lane&, std::size_t v, const ParameterRange& parameters, device::View to,
                             device::View scratch) const;
  // With several shards: the size of the fp32 memory `sums` for the gradients of adapters' whole tensors, in elements.
  // If ranks share the layer, the gradients stay there, and crossing() elements are sent to other ranks:
  // write_partial_gradients() adds this rank's shards, and take_gradients() takes the sums over all ranks.
  std::size_t sums() const { return shards_.size() * sums_of_shard(); }
  std::size_t crossing() const { return shared() ? sums_of_shard() : 0; }
  void write_partial_gradients(device::Lane&, device::ConstView sums, device::View to) const;
  void take_gradients(device::Lane&, device::ConstView from, const GradientRange& gradients) const;
  // Computes the gradients of the layer's tensors, which backward() leaves out if ranks share cut outputs and exchange
  // dx, unless the layer has an adapter.
  void backward_parameters(device::Lane&, device::ConstView x, device::ConstView dy, const GradientRange& gradients,
                           device::View scratch) const;

 private:
  bool split() const { return all_ > 1; }
  bool shared() const { return all_ > shards_.size(); }
  bool computes_parameters_apart() const {
    return shared() && side_ == CutSide::outputs && input_gradient_ && !adapted_;
  }
  // The fp32 results of this rank's shards, at the start of the scratch.
  std::size_t partial_size() const;
  std::size_t partial_bytes() const;
  double sum(double (Linear::*flops)() const) const;  // over shards
  std::size_t sums_of_shard() const;
  // The fp32 gradients of the adapters' whole tensors that shard `v` leaves; zeros for tensors that it does not have.
  device::View sums_of(device::Lane&, device::View sums, std::size_t v) const;
  // The adapter's dropout in shard v, whose input may be some columns of the layer's.
  device::Dropout of_shard(device::Dropout dropout, std::size_t v) const;

  CutSide side_ = CutSide::outputs;
  bool input_gradient_ = true;       // see Linear::Spec
  std::size_t first_ = 0, all_ = 1;  // the index of the first shard here; the number of all ranks' shards
  // in_ and width_ describe one shard: its input features, and the distance between rows of y.
  std::size_t rows_ = 0, in_ = 0, width_ = 0;
  std::vector<Linear> shards_;
  // If shards differ: a shard with all tensors and one that lacks some, even if this rank has only one of the two
  // kinds.
  std::vector<Linear> kinds_;
  std::size_t sharers_ = 1;
  bool adapted_ = false;
  // The places of the gradients of adapters' whole tensors, in the order of the shards' output: factors, then
  // magnitudes. own_sums_: the number of these elements in each shard.
  struct FullTensor {
    std::size_t offset, size;
  };
  std::vector<FullTensor> full_tensors_;
  std::vector<std::size_t> own_sums_;
  std::optional<std::size_t> bias_;
};

// The maximum scratch bytes of any call on these layers, in a lane of `threads` threads.
std::size_t scratch_bytes(std::span<const SplitLinear* const> linears, int threads);

}  // namespace strata::models
