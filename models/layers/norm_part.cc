#include "models/layers/norm_part.h"

#include <algorithm>

#include "base/error.h"
#include "device/ops/elementwise.h"

namespace strata::models {

using device::ConstView;
using device::Lane;
using device::View;

NormPart::NormPart(NormKind kind, const device::NormShape& shape, std::size_t gain, std::size_t bias,
                   const ShardRange& blocks)
    : kind_(kind), shape_(shape), gain_(gain), bias_(bias), blocks_(blocks) {
  STRATA_CHECK(blocks.of == 1 || shape.groups == 1);
}

std::size_t NormPart::unwanted_bytes() const {
  const bool unwanted = is_frozen(gain_) || (kind_ == NormKind::layer && is_frozen(bias_));
  return unwanted ? shape_.width * sizeof(float) : 0;
}

std::size_t NormPart::scratch_bytes() const {
  if (blocks_.of == 1)
    return unwanted_bytes() > 0 ? unwanted_at() + unwanted_bytes() : device::norm_backward_workspace(shape_);
  std::size_t most = 0;
  for (std::size_t v = 0; v < blocks_.count; ++v) {
    device::NormShape block = shape_;
    block.rows = rows_of(v).second - rows_of(v).first;
    most = std::max(most, device::norm_backward_workspace(block));
  }
  return most;
}

std::pair<std::size_t, std::size_t> NormPart::rows_of(std::size_t v) const {
  const std::size_t all = shape_.rows * blocks_.of / blocks_.count, first = all * blocks_.first / blocks_.of;
  const std::size_t block = blocks_.first + v;
  return {all * block / blocks_.of - first, all * (block + 1) / blocks_.of - first};
}

std::size_t NormPart::crossing() const {
  if (all_blocks()) return 0;
  std::size_t elements = 0;
  for_trained({}, [&](View, std::size_t) { elements += shape_.width; });
  return elements;
}

void NormPart::forward(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View mean, View rstd,
                       View no_bias) const {
  const ConstView gain = parameters.sub(gain_, shape_.width);
  if (kind_ == NormKind::root_mean_square) return rmsnorm_forward(lane, shape_, x, gain, y, rstd);
  if (kind_ == NormKind::layer_without_bias) zero(lane, no_bias);
  layernorm_forward(lane, shape_, x, gain,
                    kind_ == NormKind::layer ? parameters.sub(bias_, shape_.width) : ConstView(no_bias), y, mean, rstd);
}

void NormPart::backward(Lane& lane, const ParameterRange& parameters, ConstView dy, ConstView x, ConstView mean,
                        ConstView rstd, ConstView dresidual, View dx, const GradientRange& gradients, View scratch,
                        View no_bias, View sums) const {
  const ConstView gain = parameters.sub(gain_, shape_.width);
  if (blocks_.of > 1) {
    backward_blocks(lane, gain, dy, x, mean, rstd, dresidual, dx, scratch, sums);
    if (!all_blocks()) return;
    return for_trained(sums, [&](View of_blocks, std::size_t tensor) {
      tree_sum(lane, blocks_.count, of_blocks, {}, gradients.sub(tensor, shape_.width));
    });
  }
  const auto gradient_of = [&](std::size_t tensor) {
    if (!is_frozen(tensor)) return gradients.sub(tensor, shape_.width);
    const std::size_t there = scratch.bytes() - unwanted_at();
    return View{scratch.data + unwanted_at(), there / size_of(dy.dtype), dy.dtype}.sub(0, shape_.width);
  };
  const View d_gain = gradient_of(gain_);
  if (kind_ == NormKind::root_mean_square)
    return rmsnorm_backward(lane, shape_, dy, x, gain, rstd, dresidual, dx, d_gain, scratch);
  layernorm_backward(lane, shape_, dy, x, gain, mean, rstd, dresidual, dx, d_gain,
                     kind_ == NormKind::layer ? gradient_of(bias_) : no_bias, scratch);
}

void NormPart::backward_blocks(Lane& lane, ConstView gain, ConstView dy, ConstView x, ConstView mean, ConstView rstd,
                               ConstView dresidual, View dx, View scratch, View sums) const {
  const std::size_t width = shape_.width;
  for (std::size_t v = 0; v < blocks_.count; ++v) {
    const auto [begin, end] = rows_of(v);
    device::NormShape block = shape_;
    block.rows = end - begin;
    const auto rows = [&, begin = begin](auto view, std::size_t stride) {
      return view ? view.sub(begin * stride, block.rows * stride) : view;
    };
    const View d_gain = sums.sub(v * width, width);
    const View d_bias = kind_ == NormKind::root_mean_square ? View{} : sums.sub((blocks_.count + v) * width, width);
    if (block.rows == 0) {
      zero(lane, d_gain);
      if (d_bias) zero(lane, d_bias);
    } else if (kind_ == NormKind::root_mean_square) {
      rmsnorm_backward(lane, block, rows(dy, width), rows(x, width), gain, rows(rstd, 1), rows(dresidual, width),
                       rows(dx, width), d_gain, scratch);
    } else {
      layernorm_backward(lane, block, rows(dy, width), rows(x, width), gain, rows(mean, 1), rows(rstd, 1),
                         rows(dresidual, width), rows(dx, width), d_gain, d_bias, scratch);
    }
  }
}

template <typename F>
void NormPart::for_trained(View sums, F&& f) const {
  const std::size_t size = blocks_.count * shape_.width;
  const auto from = [&](std::size_t tensor) { return sums ? sums.sub(tensor * size, size) : View{}; };
  if (!is_frozen(gain_)) f(from(0), gain_);
  if (kind_ == NormKind::layer && !is_frozen(bias_)) f(from(1), bias_);
}

void NormPart::write_partial_gradients(Lane& lane, View sums, View to) const {
  std::size_t at = 0;
  for_trained(sums, [&](View of_blocks, std::size_t) {
    tree_sum(lane, blocks_.count, of_blocks, {}, to.sub(at, shape_.width));
    at += shape_.width;
  });
}

void NormPart::take_gradients(Lane& lane, ConstView from, const GradientRange& gradients) const {
  std::size_t at = 0;
  for_trained({}, [&](View, std::size_t tensor) {
    cast(lane, from.sub(at, shape_.width), gradients.sub(tensor, shape_.width));
    at += shape_.width;
  });
}

}  // namespace strata::models
