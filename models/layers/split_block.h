#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/lane.h"
#include "device/view.h"
#include "models/flat_range.h"
#include "models/layers/split_linear.h"
#include "models/model.h"

namespace strata::models {

// Linear layers that multiply the same input. Their matrices are adjacent, so that they are multiplied as one.
struct JoinedLayers {
  struct Matrix {
    std::string name;
    std::size_t out;
    std::size_t segments = 1;  // matrices of equal size that are stored as this one, their outputs side by side
  };
  std::vector<Matrix> matrices;
  bool biased;
  Init init;
};

// A transformer block with four products: for attention, its projection, and the MLP's two. In one virtual shard each
// product is a part of the unit. In several, the block is one part, since each shard has a piece of every product.
class SplitBlock : public Unit {
 public:
  std::size_t saving_parts() const final { return in_one_part() ? std::size_t{1} : saving_products(); }
  void forward(device::Lane&, const Context&, std::size_t part, device::ConstView x, device::View y,
               device::View saved) const final;
  void backward(device::Lane&, const Context&, std::size_t part, device::ConstView x, device::ConstView saved,
                device::ConstView dy, device::View dx, const GradientRange&) const final;

 protected:
  enum : std::size_t { kAttention, kProjection, kUp, kDown, kProducts };

  SplitBlock(std::string name, std::size_t shards) : Unit(std::move(name)), shards_(shards) {}

  // Adds tensors in the order of the products: the layers of each, and end_product() behind the last tensor that is
  // used with it, except for the last, behind which is end_block(). That is when `places` are known.
  void add_layers(SplitLinear::Offsets& places, const std::string& prefix, const JoinedLayers& layers, std::size_t in,
                  CutSide side, bool input_major);
  void end_product();
  void end_block();

  // The number of products, from the first, whose results are saved; the others only make y.
  virtual std::size_t saving_products() const { return kProducts; }
  // As Unit's forward and backward, for a product and what is around it.
  virtual void forward_of(device::Lane&, const Context&, std::size_t product, device::ConstView x, device::View y,
                          device::View saved) const = 0;
  virtual void backward_of(device::Lane&, const Context&, std::size_t product, device::ConstView x,
                           device::ConstView saved, device::ConstView dy, device::View dx,
                           const GradientRange&) const = 0;

 private:
  // Layers whose tensors are given by their indices among the unit's parameters.
  struct Added {
    SplitLinear::Offsets* places;
    CutSide side;
    bool biased;
    std::vector<Linear::Tensor> tensors;
  };
  bool in_one_part() const { return parts().size() == 1; }
  std::size_t add(std::string name, std::vector<std::int64_t> shape, const Slice& slice, bool decay, Init init);

  std::size_t shards_;
  std::vector<Added> added_;  // until end_block()
};

// Throws Error{usage} if parallel.tensor_shards does not divide the heads, the heads of keys and the MLP's width.
void require_whole_shards(const RunShape& run, std::size_t heads, std::size_t kv_heads, std::size_t inner);

}  // namespace strata::models
