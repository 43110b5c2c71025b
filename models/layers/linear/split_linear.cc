#include "models/layers/linear/split_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/ops/elementwise.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::Lane;
using device::View;

// Shard `v` of a stack of `count` equal matrices; an empty view has empty shards.
template <typename AnyView>
AnyView of(AnyView stack, std::size_t v, std::size_t size) {
  return stack ? stack.sub(v * size, size) : AnyView{};
}

View after(View scratch, std::size_t bytes) {
  return View{scratch.data + bytes, (scratch.bytes() - bytes) / size_of(scratch.dtype), scratch.dtype};
}

}  // namespace

std::string key_text(const ShardRange& shards) {
  return fmt::format("{} = {}", shards.count == 1 ? "parallel.tensor" : "parallel.tensor_shards", shards.of);
}

SplitLinear::SplitLinear(Linear full) {
  shards_.push_back(std::move(full));
  width_ = shards_[0].out();
}

SplitLinear::SplitLinear(CutSide side, Linear::Spec spec, const Offsets& offsets)
    : side_(side),
      input_gradient_(spec.input_gradient),
      first_(offsets.first),
      all_(std::max(offsets.of, offsets.shards.size())),
      rows_(spec.rows) {
  const bool inputs = side == CutSide::inputs;
  if (split()) {
    spec.partial_output = inputs;
    spec.partial_input_gradient = !inputs;
    if (inputs) {
      STRATA_CHECK_EQ(spec.in % all_, 0u);
      spec.in /= all_;
      spec.bias = false;
      bias_ = offsets.bias;
    }
  }
  in_ = spec.in;
  sharers_ = offsets.sharers;
  for (const Linear::Tensor& tensor : offsets.complete) spec.width += tensor.out;
  if (sharers_ > 1)
    for (const std::size_t count : {offsets.complete.size(), offsets.everywhere}) {
      spec.tensors.assign(offsets.complete.begin(), offsets.complete.begin() + static_cast<std::ptrdiff_t>(count));
      kinds_.emplace_back(spec);
    }
  for (const std::vector<Linear::Tensor>& tensors : offsets.shards) {
    spec.tensors.clear();
    std::size_t own = 0;
    for (const Linear::Tensor& tensor : tensors) {
      const LowRank& at = tensor.low_rank;
      adapted_ = adapted_ || at.rank > 0;
      const std::size_t full = !split() ? 0 : at.rank * (inputs ? tensor.out : in_);
      if (shards_.empty() && full > 0) full_tensors_.push_back({inputs ? at.b : at.a, full});
      if (tensor.out == 0) continue;
      STRATA_CHECK_EQ(spec.tensors.size(), static_cast<std::size_t>(&tensor - tensors.data()));
      spec.tensors.push_back(tensor);
      own += full;
    }
    for (const Linear::Tensor& tensor : spec.tensors) {
      if (!split() || !inputs || !tensor.low_rank.dora) continue;
      if (shards_.empty()) full_tensors_.push_back({tensor.low_rank.magnitude, tensor.out});
      own += tensor.out;
    }
    shards_.emplace_back(spec);
    own_sums_.push_back(own);
  }
  width_ = spec.width > 0 ? spec.width : shards_[0].out();
  if (split() && inputs && spec.adapter_dropout > 0 && adapted_ && in_ % 4 != 0)
    fail(
        Exit::usage,
        "adapter.dropout needs rows whose length is a multiple of 4, and with {} a shard of this model has rows of {}: "
        "use fewer shards, or leave adapter.dropout out",
        key_text(ShardRange{first_, shards_.size(), all_}), in_);
}

std::size_t SplitLinear::sums_of_shard() const {
  std::size_t elements = 0;
  for (const FullTensor& full : full_tensors_) elements += full.size;
  return elements;
}

View SplitLinear::sums_of(Lane& lane, View sums, std::size_t v) const {
  const View all = sums.sub(v * sums_of_shard(), sums_of_shard());
  if (own_sums_[v] < all.size) zero(lane, all.sub(own_sums_[v], all.size - own_sums_[v]));
  return all;
}

device::Dropout SplitLinear::of_shard(device::Dropout dropout, std::size_t v) const {
  if (side_ == CutSide::outputs) return dropout;
  dropout.first = (first_ + v) * in_;
  dropout.columns = static_cast<std::uint32_t>(in_);
  dropout.stride = static_cast<std::uint32_t>(in_ * all_);
  return dropout;
}

void SplitLinear::write_partial_squares(Lane& lane, std::size_t v, const ParameterRange& parameters, View to,
                                        View scratch) const {
  shards_[v].write_partial_squares(lane, parameters, to, after(scratch, partial_bytes()));
}

void SplitLinear::write_partial_gradients(Lane& lane, ConstView sums, View to) const {
  tree_sum(lane, shards_.size(), sums, {}, to.sub(0, sums_of_shard()));
}

void SplitLinear::take_gradients(Lane& lane, ConstView from, const GradientRange& gradients) const {
  std::size_t at = 0;
  for (const auto& [offset, size] : full_tensors_) {
    cast(lane, from.sub(at, size), gradients.sub(offset, size));
    at += size;
  }
}

std::size_t SplitLinear::out() const {
  return width_ * (side_ == CutSide::outputs ? shards_.size() : 1);
}

std::size_t SplitLinear::scales() const {
  if (!split()) return shards_[0].scales();
  const auto& kinds = kinds_.empty() ? shards_ : kinds_;
  const bool any = std::ranges::any_of(kinds, [](const Linear& shard) { return shard.scales() > 0; });
  return any && side_ == CutSide::outputs ? shards_.size() * width_ : 0;
}

std::size_t SplitLinear::partial_size() const {
  return rows_ * (side_ == CutSide::outputs ? in_ : width_);
}

std::size_t SplitLinear::partial_bytes() const {
  if (side_ == CutSide::outputs && !input_gradient_) return 0;
  return aligned(shards_.size() * partial_size() * sizeof(float));
}

std::size_t SplitLinear::scratch_bytes(int threads) const {
  std::size_t most = 0;
  for (const Linear& shard : kinds_.empty() ? shards_ : kinds_) most = std::max(most, shard.scratch_bytes(threads));
  if (!split()) return most;
  if (bias_) most = std::max(most, device::column_sum_workspace(rows_, out()));
  return partial_bytes() + most;
}

double SplitLinear::sum(double (Linear::*flops)() const) const {
  if (kinds_.empty()) {
    double all = 0;
    for (const Linear& shard : shards_) all += (shard.*flops)();
    return all;
  }
  const auto sharers = static_cast<double>(sharers_), count = static_cast<double>(shards_.size());
  return count * ((kinds_[0].*flops)() + (sharers - 1) * (kinds_[1].*flops)()) / sharers;
}

double SplitLinear::forward_flops() const {
  return sum(&Linear::forward_flops);
}

double SplitLinear::backward_flops() const {
  return sum(&Linear::backward_flops);
}

void SplitLinear::list_products(std::vector<device::ProductShape>& out) const {
  for (const Linear& shard : kinds_.empty() ? shards_ : kinds_) shard.list_products(out);
}

void SplitLinear::forward(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View scratch, View active,
                          const device::Dropout& dropout, ConstView squares, const KeptScales& kept) const {
  if (!split()) return shards_[0].forward(lane, parameters, x, y, scratch, active, dropout, {}, kept);
  const std::size_t count = shards_.size(), output = rows_ * width_, input = rows_ * in_;
  if (side_ == CutSide::outputs) {
    for (std::size_t v = 0; v < count; ++v)
      shards_[v].forward(lane, parameters, x, of(y, v, output), scratch, of(active, v, output), dropout, {},
                         {of(kept.scales, v, width_), kept.computed});
    return;
  }
  STRATA_CHECK(!kept.scales);
  const View partials{scratch.data, count * output, device::DType::fp32};
  for (std::size_t v = 0; v < count; ++v)
    shards_[v].forward(lane, parameters, of(x, v, input), of(partials, v, output), after(scratch, partial_bytes()), {},
                       of_shard(dropout, v), squares);
  tree_sum(lane, count, partials, bias_ && !shared() ? parameters.sub(*bias_, out()) : ConstView{}, y.sub(0, output));
}

void SplitLinear::backward(Lane& lane, const ParameterRange& parameters, ConstView x, ConstView dy, View dx,
                           const GradientRange& gradients, View scratch, ConstView inactive,
                           const device::Dropout& dropout, View sums, ConstView squares) const {
  if (!split()) return shards_[0].backward(lane, parameters, x, dy, dx, gradients, scratch, inactive, dropout);
  const std::size_t count = shards_.size(), output = rows_ * width_, input = rows_ * in_;
  if (side_ == CutSide::inputs) {
    for (std::size_t v = 0; v < count; ++v)
      shards_[v].backward(lane, parameters, of(x, v, input), dy, of(dx, v, input), gradients, scratch,
                          of(inactive, v, input), of_shard(dropout, v), sums_of(lane, sums, v), squares);
    if (const View db = bias_ ? gradients.sub(*bias_, out()) : View{})
      column_sum(lane, rows_, out(), out(), dy, db, scratch);
  } else {
    const View partials = input_gradient_ ? View{scratch.data, count * input, device::DType::fp32} : View{};
    const View rest = after(scratch, partial_bytes());
    for (std::size_t v = 0; v < count; ++v)
      if (computes_parameters_apart())
        shards_[v].backward_input(lane, parameters, of(dy, v, output), of(partials, v, input), rest);
      else
        shards_[v].backward(lane, parameters, x, of(dy, v, output), of(partials, v, input), gradients, rest, {},
                            dropout, sums_of(lane, sums, v));
    if (input_gradient_) tree_sum(lane, count, partials, {}, dx.sub(0, input));
  }
  if (shared() || sums_of_shard() == 0) return;
  tree_sum(lane, count, sums.sub(0, this->sums()), {}, sums.sub(0, sums_of_shard()));
  take_gradients(lane, sums, gradients);
}

void SplitLinear::backward_parameters(Lane& lane, ConstView x, ConstView dy, const GradientRange& gradients,
                                      View scratch) const {
  STRATA_CHECK(shared() && side_ == CutSide::outputs);
  if (!computes_parameters_apart()) return;
  const std::size_t output = rows_ * width_;
  for (std::size_t v = 0; v < shards_.size(); ++v)
    shards_[v].backward_parameters(lane, x, of(dy, v, output), gradients, scratch);
}

std::size_t scratch_bytes(std::span<const SplitLinear* const> linears, int threads) {
  std::size_t most = 0;
  for (const SplitLinear* linear : linears) most = std::max(most, linear->scratch_bytes(threads));
  return most;
}

}  // namespace strata::models
