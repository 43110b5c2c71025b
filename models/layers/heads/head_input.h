#pragma once
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "models/layers/heads/head_places.h"
#include "models/layers/heads/loss_rows.h"
#include "models/layers/linear/linear.h"
#include "models/layers/norm_part.h"
#include "models/model.h"

namespace strata::models {

// The part of a head before its table: it selects the rows that enter the loss and applies the transform of a masked
// language model (the GELU of erf of a dense layer), with a norm before it if it has one, and the final norm. A piece
// of the head, in whose flat buffer its tensors lie.
class HeadInput {
 public:
  HeadInput(const RunShape& run, std::size_t hidden) : taken_(run, hidden), hidden_(hidden) {}
  void set_norm(NormPart norm) { norm_.emplace(std::move(norm)); }
  void set_entry_norm(NormPart norm) { entry_norm_.emplace(std::move(norm)); }
  // `tensor`: the place of the transform's dense layer.
  void set_transform(const Linear::Tensor& tensor, bool biased, const RunShape& run);

  std::size_t rows() const { return taken_.count(); }
  bool picks() const { return taken_.picks(); }
  bool transforms() const { return transform_.has_value(); }
  bool has_entry_norm() const { return entry_norm_.has_value(); }
  const NormPart& norm() const { return *norm_; }
  std::size_t scratch_bytes(int threads) const;
  void list_products(std::vector<device::ProductShape>& out) const;
  double flops(bool forward, bool backward) const;  // of the transform

  // From x, [tokens, hidden], to `normed` in the workspace.
  void forward(device::Lane&, const Context&, const HeadPlaces&, device::ConstView x,
               const device::Dropout& adapter_dropout) const;
  // d_norm: the gradient of `normed`, whose memory is used. Writes dx and the gradients of the tensors.
  void backward(device::Lane&, const Context&, const HeadPlaces&, device::ConstView x, device::ConstView d_norm,
                device::View dx, const GradientRange& gradients, const device::Dropout& adapter_dropout) const;

 private:
  // taken(): the input of the first step. entered(): that of the transform. unnormed(): that of the final norm.
  device::ConstView taken(const Context&, const HeadPlaces&, device::ConstView x) const;
  device::ConstView entered(const Context&, const HeadPlaces&, device::ConstView x) const;
  device::ConstView unnormed(const Context&, const HeadPlaces&, device::ConstView x) const;

  LossRows taken_;
  std::size_t hidden_;
  std::optional<Linear> transform_;
  std::optional<NormPart> norm_, entry_norm_;
};

}  // namespace strata::models
