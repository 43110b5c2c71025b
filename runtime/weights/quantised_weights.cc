#include "runtime/weights/quantised_weights.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "device/numeric/exact_sum.h"
#include "runtime/weights/nf4_block.h"

namespace strata::runtime {
namespace {

using device::kNf4Block, device::kScaleBlock, device::StorageFormat;

class QuantisedWeights final : public WeightSource {
 public:
  QuantisedWeights(std::unique_ptr<WeightSource> weights, const models::Model& model)
      : weights_(std::move(weights)), model_(model) {}

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    if (!in_pool(unit, parameter)) return weights_->read(unit, parameter, begin, out);
    std::vector<std::byte> block(stored_bytes(model_.quantised, kNf4Block));
    std::vector<float> values(kNf4Block);
    for (std::size_t at = begin / kNf4Block * kNf4Block; at < begin + out.size(); at += kNf4Block) {
      read_block(unit, parameter, at, block);
      read_nf4_block(model_.quantised, block, values);
      const std::size_t from = std::max(at, begin), to = std::min(at + kNf4Block, begin + out.size());
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from - at), to - from,
                  out.begin() + static_cast<std::ptrdiff_t>(from - begin));
    }
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    weights_->prefetch(unit, parameter, begin, count);
  }
  bool quantised(std::size_t unit, std::size_t parameter, StorageFormat format) const override {
    return in_pool(unit, parameter) && format == model_.quantised;
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    if (weights_->quantised(unit, parameter, model_.quantised))
      return weights_->read_block(unit, parameter, begin, block);
    std::vector<float> values(std::min(kNf4Block, of(unit, parameter).size() - begin));
    weights_->read(unit, parameter, begin, values);
    write_nf4_block(model_.quantised, values, offset(unit, parameter), block);
  }
  std::vector<std::string> initialised() const override { return weights_->initialised(); }
  std::vector<std::string> left_out() const override { return weights_->left_out(); }
  Base base() const override { return weights_->base(); }

 private:
  const models::Parameter& of(std::size_t unit, std::size_t parameter) const {
    return model_.units[unit]->parameters()[parameter];
  }
  bool in_pool(std::size_t unit, std::size_t parameter) const {
    return of(unit, parameter).pool() == models::PoolKind::quantised;
  }
  // The offset that scale_offsets() computes.
  float offset(std::size_t unit, std::size_t parameter) const {
    if (model_.quantised != StorageFormat::nf4) return 0;
    const std::scoped_lock lock(mutex_);
    const auto [found, is_new] = offsets_.try_emplace({unit, parameter}, 0.0f);
    if (!is_new) return found->second;
    device::ExactSum sum;
    std::size_t count = 0;
    std::vector<float> values;
    for (std::size_t at = 0, size = of(unit, parameter).size(); at < size; at += kNf4Block) {
      values.resize(std::min(kNf4Block, size - at));
      weights_->read(unit, parameter, at, values);
      for (std::size_t i = 0; i < values.size(); i += kScaleBlock, ++count)
        sum.add(nf4_scale(std::span(values).subspan(i, std::min(kScaleBlock, values.size() - i))));
    }
    return found->second = static_cast<float>(sum.round() / static_cast<double>(count));
  }

  std::unique_ptr<WeightSource> weights_;
  const models::Model& model_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::size_t, std::size_t>, float> offsets_;
};

}  // namespace

std::unique_ptr<WeightSource> quantised_weights(std::unique_ptr<WeightSource> weights, const models::Model& model) {
  return std::make_unique<QuantisedWeights>(std::move(weights), model);
}

}  // namespace strata::runtime
