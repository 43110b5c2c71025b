#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/lane.h"
#include "device/ops/attention/attention.h"
#include "device/view.h"
#include "models/flat_range.h"
#include "models/layers/linear/split_linear.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"
#include "models/model.h"

namespace strata::models {

// Linear layers that multiply the same input. Their matrices are adjacent, so they are multiplied as one.
struct JoinedLayers {
  struct Matrix {
    std::string name;
    std::size_t out;
    std::size_t segments = 1;  // matrices of equal size that are stored as this one, their outputs side by side
    std::size_t sharers = 1;   // see Slice
  };
  std::vector<Matrix> matrices;
  bool biased;
  Init init;
};

// The steps of a block that may have parameters, in forward order; input: the block's own input.
enum class BlockStep : std::uint8_t {
  input,
  input_norm,
  heads,  // queries, keys and values
  head_norms,
  projection,
  middle_norm,
  up,
  down,
  output_norm
};

// Where backward ends in a block: at the lowest trained step if nothing below the block trains, otherwise at the
// block's input. This determines what the block saves, computes and exchanges in backward.
struct BackwardEnd {
  BlockStep step = BlockStep::input;

  // reaches(): backward computes the gradient of the step's output, which gives its parameters' gradients. passes(): it
  // computes the gradient of the step's input.
  bool reaches(BlockStep s) const { return step <= s; }
  bool passes(BlockStep s) const { return step < s; }
};

// A transformer block with four products: for attention, its projection, and the MLP's two. In one virtual shard each
// product is a part of the unit. With several, the block is one part, because each shard has a piece of every product.
// If ranks share the block, its calls have seams after the products whose results are sums over shards. If the ranks
// also divide the rows, each takes its rows of such a sum. There is then also a seam before each half of a block
// (attention and projection, or the MLP), where the ranks gather the half's input or, in backward, the gradient of its
// output. With DoRA in layers whose inputs are cut, a forward begins with a seam where ranks gather squared norms.
class SplitBlock : public Unit {
 public:
  std::size_t saving_parts() const final { return in_one_part() ? std::size_t{1} : saving_products(); }
  std::size_t first_backward_part() const final { return in_one_part() ? std::size_t{0} : first_backward_product(); }
  void forward(device::Lane&, const Context&, std::size_t part, device::ConstView x, device::View y,
               device::View saved) const final;
  void backward(device::Lane&, const Context&, std::size_t part, device::ConstView x, device::ConstView saved,
                device::ConstView dy, device::View dx, const GradientRange&) const final;
  std::vector<Seam> seams(Pass pass, bool wants_output) const final;

  // Call this if no unit below trains anything.
  void end_backward() { end_ = trains() ? BackwardEnd{lowest_trained_} : BackwardEnd{}; }
  const BackwardEnd& backward_end() const { return end_; }

 protected:
  enum : std::size_t { kAttention, kProjection, kUp, kDown, kProducts };
  static constexpr BlockStep step_of(std::size_t product) {
    constexpr BlockStep kSteps[] = {BlockStep::heads, BlockStep::projection, BlockStep::up, BlockStep::down};
    return kSteps[product];
  }

  SplitBlock(std::string name, const RunShape& run)
      : Unit(std::move(name), {.own_rows = true}), shards_(run.shards), divides_rows_(run.divides_rows()) {}

  // Adds tensors in the order of the products: the layers of each, then end_product() after the last tensor that is
  // used with it. The last product ends with end_block() instead, which fills in `places`.
  void add_layers(SplitLinear::Offsets& places, const std::string& prefix, const JoinedLayers& layers, std::size_t in,
                  CutSide side, bool input_major);
  void end_product();
  void end_block();
  // Adds a norm's tensors, name + ".weight" and, if it has one, ".bias".
  NormOffsets add_norm(BlockStep step, NormKind kind, const std::string& name, std::size_t width);
  bool reaches(BlockStep step) const { return end_.reaches(step); }
  bool passes(BlockStep step) const { return end_.passes(step); }

  // The number of products, from the first, whose results are saved. The others only serve to compute y.
  virtual std::size_t saving_products() const { return kProducts; }
  // The product whose backward includes the backward of the norm between projection and MLP.
  virtual std::size_t middle_norm_product() const { return kProjection; }
  // The memory of a forward's activations; some of them may pass.
  virtual ActivationViews activations(const Context&, device::View saved) const = 0;
  // Attention runs between its product and the projection. If ranks share key heads, a call has a seam before attention
  // in forward, and after it in backward.
  virtual void attend(device::Lane&, const Context&, const ActivationViews& saved) const = 0;
  virtual void attend_backward(device::Lane&, const Context&, device::ConstView x, device::ConstView saved) const = 0;
  // The number of elements that cross at that seam; 0: there is none.
  virtual std::size_t crossing_keys() const { return 0; }
  // DoRA's squared norms (SplitLinear::squares); squares() is their number. At the start of a forward, each rank leaves
  // the sums over its shards. If ranks share the block, they gather these at a seam, and take_squares() saves the sums
  // over all shards. Otherwise write_partial_squares() writes to saved_squares().
  virtual std::size_t squares() const = 0;
  virtual void write_partial_squares(device::Lane&, const Context&, device::View to) const = 0;
  virtual void take_squares(device::Lane&, const Context&, const ActivationViews& saved) const = 0;
  virtual device::View saved_squares(const Context&, const ActivationViews& saved) const = 0;
  // Like Unit's forward and backward, for a product and what comes before it. After a product whose result is a sum
  // over shards, after_forward() or after_backward() does the work that uses the sum: after the projection and the
  // MLP's second product in forward, after the MLP's first product and attention in backward.
  virtual void forward_of(device::Lane&, const Context&, std::size_t product, device::ConstView x, device::View y,
                          const ActivationViews& saved) const = 0;
  virtual void after_forward(device::Lane&, const Context&, std::size_t product, device::ConstView x, device::View y,
                             const ActivationViews& saved) const = 0;
  virtual void backward_of(device::Lane&, const Context&, std::size_t product, device::ConstView x,
                           device::ConstView saved, device::ConstView dy, device::View dx,
                           const GradientRange&) const = 0;
  virtual void after_backward(device::Lane&, const Context&, std::size_t product, device::ConstView x,
                              device::ConstView saved, device::ConstView dy, device::View dx,
                              const GradientRange&) const = 0;
  // If ranks share the block: computes the gradients of a product's tensors while the ranks add the gradient of its
  // input, which is a sum over shards.
  virtual void backward_parameters_of(device::Lane&, const Context&, std::size_t product, device::ConstView x,
                                      device::ConstView saved, const GradientRange&) const = 0;
  // The seam after the product, where the block's caller adds the product's sum over the ranks; without elements if
  // there is no sum.
  virtual Seam seam_after(Pass pass, std::size_t product) const = 0;
  // If ranks divide the rows: computes the input of a half of the block and leaves this rank's rows of it in `to`.
  virtual void leave_input(device::Lane&, const Context&, std::size_t product, device::ConstView x,
                           const ActivationViews& saved, device::View to) const = 0;
  // The same in backward, for the gradient of the half's output; `to` is empty if backward ends above it. If the block
  // trains, `input` gets the rows of the half's input again, for backward_parameters_of(); it is empty if nothing needs
  // them.
  virtual void write_partial_gradient(device::Lane&, const Context&, std::size_t product, device::ConstView x,
                                      device::ConstView saved, device::ConstView dy, device::View dx, device::View to,
                                      device::View input) const = 0;
  // Gradients that are sums of all ranks' parts (of norms and of adapters' whole tensors): their number of elements; a
  // rank leaves its part, and takes the sums.
  virtual std::size_t crossing_gradients() const = 0;
  virtual void write_partial_gradients(device::Lane&, const Context&, device::View to) const = 0;
  virtual void take_gradients(device::Lane&, device::ConstView from, const GradientRange&) const = 0;

  // A product leaves its sum over shards in sum_in(): `own`, or the call's partial sum if other ranks add to it. The
  // code that uses the sum reads it from sum_of().
  static device::View sum_in(const Context& c, device::View own) { return c.partial ? c.partial : own; }
  static device::ConstView sum_of(const Context& c, device::View own) {
    return c.total ? c.total.sub(0, own.size) : device::ConstView(own);
  }
  // True if a forward, or its stretch, computes y or a partial sum of it.
  static bool makes_output(const Context& c, device::View y) { return y || c.partial; }
  bool shared() const { return shards_.count < shards_.of; }
  bool divides_rows() const { return divides_rows_; }
  const ShardRange& shards() const { return shards_; }
  // The input of a half of the block, or in backward the gradient of its output: `own`, or all rows if the ranks have
  // gathered them. gathered_input(): the input in backward.
  device::ConstView gathered_rows(const Context& c, device::ConstView own) const {
    return divides_rows_ ? c.total.sub(0, own.size / shards_.count * shards_.of) : own;
  }
  device::ConstView gathered_input(const Context& c, device::ConstView own) const {
    const std::size_t size = own.size / shards_.count * shards_.of;
    return divides_rows_ && trains() ? c.total.sub(size, size) : own;
  }
  // The product where backward ends.
  std::size_t first_backward_product() const;

 private:
  // Layers whose tensors are given by their indices among the unit's parameters.
  struct Added {
    SplitLinear::Offsets* places;
    CutSide side;
    bool biased;
    std::vector<Linear::Tensor> tensors;
    std::vector<std::size_t> sharers;  // the sharers of each tensor; see Slice
  };
  bool in_one_part() const { return parts().size() == 1; }
  // True if a product's result is a sum over shards.
  static bool is_sum(Pass pass, std::size_t product) {
    return pass == Pass::forward ? product == kProjection || product == kDown : product == kUp || product == kAttention;
  }
  std::size_t add(std::string name, std::vector<std::int64_t> shape, const Slice& slice, bool decay, Init init);

  // True if the product is the first of a half of the block in the pass.
  static bool starts_half(Pass pass, std::size_t product) {
    return pass == Pass::forward ? product == kAttention || product == kUp : product == kProjection || product == kDown;
  }
  // True if backward reads the input of the half of the block that ends in the product.
  bool needs_input(std::size_t product) const {
    return trains() && reaches(product == kDown ? BlockStep::up : BlockStep::heads);
  }
  // The i-th row matrix that the call leaves for the other ranks.
  static device::View rows_in(const Context& c, device::ConstView x, std::size_t i);
  // Records the step if a trained tensor was added for it; `first`: the index of the first tensor added.
  void note_trained(BlockStep step, std::size_t first);

  ShardRange shards_;
  bool divides_rows_;
  BlockStep lowest_trained_ = BlockStep::output_norm;
  BackwardEnd end_;
  std::vector<bool> adapted_;  // per product: whether some of its layers have adapters
  std::vector<Added> added_;   // the tensors added so far; empty after end_block()
};

// Throws Error{usage} unless the number of shards divides the heads and the MLP's width, and either divides the
// key-value heads or is a multiple of them: a key-value head is in one shard, or several shards have only that head.
void require_whole_shards(const RunShape& run, std::size_t heads, std::size_t kv_heads, std::size_t inner);

// Implements Unit::work for a transformer block with one linear layer per part, or all of them in one part.
// `activation`: the bytes of x, and of y, which forward reads and writes in addition to its saved values and to the
// `passing` bytes of its other activations; backward reads the saved values and writes the same number of bytes.
Work block_work(const Unit& block, Pass pass, const PartRange& parts, std::span<const SplitLinear* const> linears,
                const device::AttentionShape& attention, std::size_t activation, const BackwardEnd& end,
                std::size_t passing);

}  // namespace strata::models
