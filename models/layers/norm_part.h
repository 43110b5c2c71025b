#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/ops/norm.h"
#include "models/flat_range.h"

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

// A norm as a piece of a unit. Its tensors lie in the unit's flat buffer.
class NormPart {
 public:
  // gain, bias: their offsets there; only NormKind::layer has a bias.
  NormPart(NormKind kind, const device::NormShape& shape, std::size_t gain, std::size_t bias = 0);

  // Bytes of scratch that backward() needs.
  std::size_t scratch_bytes() const {
    return unwanted_bytes() > 0 ? unwanted_at() + unwanted_bytes() : device::norm_backward_workspace(shape_);
  }

  // mean and rstd are for backward(); root_mean_square has no mean. `no_bias`: memory of `width` elements for
  // layer_without_bias; backward() writes it too.
  void forward(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View y, device::View mean,
               device::View rstd, device::View no_bias = {}) const;
  // dx is the gradient of x, plus dresidual if there is one (dx may be dresidual). Also writes the gradients of the
  // norm's trained tensors.
  void backward(device::Lane&, const ParameterRange& parameters, device::ConstView dy, device::ConstView x,
                device::ConstView mean, device::ConstView rstd, device::ConstView dresidual, device::View dx,
                const GradientRange& gradients, device::View scratch, device::View no_bias = {}) const;

 private:
  // The operation writes all gradients; those of frozen tensors go to the end of the scratch, where nothing reads them.
  std::size_t unwanted_at() const { return (device::norm_backward_workspace(shape_) + 63) / 64 * 64; }
  std::size_t unwanted_bytes() const;

  NormKind kind_;
  device::NormShape shape_;
  std::size_t gain_, bias_;
};

}  // namespace strata::models
