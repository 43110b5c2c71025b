#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

#include "device/lane.h"
#include "device/ops/norm.h"
#include "models/flat_range.h"
#include "models/layers/slots.h"
#include "models/parameter.h"

namespace strata::models {

enum class NormKind : std::uint8_t {
  layer,
  layer_without_bias,  // LayerNorm with a constant bias of zeros
  root_mean_square
};

// The usual kinds: LayerNorm if it has a bias, or is centred without one, otherwise RMSNorm.
constexpr NormKind norm_kind(bool has_bias, bool centred) {
  return has_bias ? NormKind::layer : centred ? NormKind::layer_without_bias : NormKind::root_mean_square;
}

// The norm of `rows` rows with `width` contiguous elements each.
inline device::NormShape norm_of_rows(std::size_t rows, std::size_t width, float eps) {
  return {rows, width, 1, width, width, eps};
}

// The places of a norm's tensors in the unit's flat buffer; only NormKind::layer has a bias.
struct NormOffsets {
  std::size_t gain = 0, bias = 0;
};

// A norm as a piece of a unit. Its tensors lie in the unit's flat buffer.
//
// The gradients of gain and bias are sums over rows. With V virtual shards, block v of n rows has rows [v n / V, (v +
// 1) n / V). The blocks' sums, in fp32, are added by a balanced tree and rounded once, so they have the same bits if
// each rank has only some of the blocks.
class NormPart {
 public:
  // gain, bias: their offsets in that buffer; only NormKind::layer has a bias. `blocks`: the blocks of rows that
  // `shape` covers. If other ranks have some blocks, the caller adds the output of write_partial_gradients() over the
  // ranks.
  NormPart(NormKind kind, const device::NormShape& shape, std::size_t gain, std::size_t bias = 0,
           const ShardRange& blocks = {});

  // Bytes of scratch that backward() needs.
  std::size_t scratch_bytes() const;
  // Elements of fp32 memory for the blocks' sums; 0: there is one block.
  std::size_t sums() const { return blocks_.of == 1 ? 0 : blocks_.count * sums_of_block(); }
  // Elements that write_partial_gradients() writes: the trained tensors' gradients.
  std::size_t crossing() const;

  // mean and rstd are for backward(); root_mean_square has no mean. `no_bias`: memory of `width` elements for
  // layer_without_bias; backward() writes it too.
  void forward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y, device::View mean,
               device::View rstd, device::View no_bias = {}) const;
  // dx is the gradient of x, plus dresidual if there is one (dx may be dresidual). Also writes the gradients of the
  // norm's trained tensors, unless other ranks have some of the blocks. `sums`: memory of sums() elements.
  void backward(device::Lane&, const ParameterRange& parameters, device::ConstView dy, device::ConstView x,
                device::ConstView mean, device::ConstView rstd, device::ConstView dresidual, device::View dx,
                const GradientRange& gradients, device::View scratch, device::View no_bias = {},
                device::View sums = {}) const;
  // write_partial_gradients() adds `sums` over this rank's blocks and writes the result to `to`, in fp32.
  // take_gradients() writes the sums over all ranks as the gradients.
  void write_partial_gradients(device::Lane&, device::View sums, device::View to) const;
  void take_gradients(device::Lane&, device::ConstView from, const GradientRange& gradients) const;

 private:
  // The operation writes all gradients; the gradients of frozen tensors are written to the end of the scratch, where
  // nothing reads them.
  std::size_t unwanted_at() const { return aligned(device::norm_backward_workspace(shape_)); }
  std::size_t unwanted_bytes() const;
  // One block's sums: the gain's and, except for root_mean_square, the bias's.
  std::size_t sums_of_block() const { return (kind_ == NormKind::root_mean_square ? 1 : 2) * shape_.width; }
  bool all_blocks() const { return blocks_.count == blocks_.of; }
  // The rows of this rank's block v, counted from its first one.
  std::pair<std::size_t, std::size_t> rows_of(std::size_t v) const;
  void backward_blocks(device::Lane&, device::ConstView gain, device::ConstView dy, device::ConstView x,
                       device::ConstView mean, device::ConstView rstd, device::ConstView dresidual, device::View dx,
                       device::View scratch, device::View sums) const;
  // Calls f(sums of each of this rank's blocks, offset) for each trained tensor.
  template <typename F>
  void for_trained(device::View sums, F&& f) const;

  NormKind kind_;
  device::NormShape shape_;
  std::size_t gain_, bias_;
  ShardRange blocks_;
};

}  // namespace strata::models
