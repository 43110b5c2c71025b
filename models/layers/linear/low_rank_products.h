#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/lane.h"
#include "device/ops/dropout.h"
#include "device/ops/products/product.h"
#include "device/view.h"
#include "models/adapter.h"
#include "models/flat_range.h"

namespace strata::models {

// The contribution of adapters to a linear layer y = x W: y += s (x A^T) B^T for each of its tensors with an adapter. A
// is [rank, in] and B [out, rank], however W is stored. Adapters with adjacent A and equal scale share the product that
// reads x, unless there is dropout. Prepared once per shape.
class LowRankProducts {
 public:
  struct Target {
    std::size_t column, out;  // its columns of y
    LowRank at;
  };
  struct Spec {
    std::size_t rows, in, out;       // out: the distance between rows of y
    device::DType dtype, input_sum;  // dtype: of all operands; input_sum: of the dx to which backward() adds
    device::Device device = {};
    float dropout = 0;             // of the input of A; target i uses the first site + i
    device::DType output = dtype;  // of the y to which forward() adds
    // The factor that every shard has whole, if the layer is computed in virtual shards. Its gradient is a sum over
    // shards, of which backward_parameters() leaves this one's in fp32.
    enum class Whole : std::uint8_t { none, a, b } whole = Whole::none;
  };
  // Targets of rank 0 have no adapter.
  LowRankProducts(const Spec& spec, std::span<const Target> targets);

  bool empty() const { return groups_.empty(); }
  // kept_bytes(): live from backward_parameters() to backward_input(). scratch_bytes(): what any call needs in
  // addition, in a lane of `threads` threads.
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
  // Computes dA and dB, those of whole factors into `sums`, in the order of the targets; leaves s dy B in `kept`.
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
    std::uint32_t number;  // of its first target
    device::Product down, d_a, input;
    std::vector<Member> members;
  };
  // The thin matrix [rows, group.rank]: x A^T, or in backward also s dy B.
  device::View thin(const Group& group, device::View kept, bool gradient) const;
  // Computes s x A^T; returns x as multiplied by A, i.e. after dropout.
  device::ConstView run_down(device::Lane&, const Group& group, const ParameterRange& parameters, device::ConstView x,
                             device::View kept, device::View scratch, const device::Dropout& dropout) const;
  device::Dropout of(const Group& group, device::Dropout dropout) const;
  // A matrix like x: x after dropout or, in backward, its gradient through one adapter.
  device::View wide(device::View kept, device::DType dtype) const;

  Spec spec_;
  std::size_t columns_ = 0;  // of all groups, each rounded up to a cache line
  std::vector<Group> groups_;
};

}  // namespace strata::models
