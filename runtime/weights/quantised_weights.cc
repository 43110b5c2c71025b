#include "runtime/weights/quantised_weights.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "device/numeric/exact_sum.h"
#include "runtime/weights/floats.h"

namespace strata::runtime {
namespace {

using device::kNf4Block, device::kScaleBlock, device::StorageFormat;

class QuantisedWeights final : public ForwardedWeights {
 public:
  QuantisedWeights(std::unique_ptr<WeightSource> weights, const models::Model& model)
      : ForwardedWeights(std::move(weights)), model_(model) {}

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    if (!in_pool(unit, parameter)) return weights_.read(unit, parameter, begin, out);
    read_blocks(*this, model_.quantised, unit, parameter, begin, out);
  }
  bool quantised(std::size_t unit, std::size_t parameter, StorageFormat format) const override {
    return in_pool(unit, parameter) && format == model_.quantised;
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    if (weights_.quantised(unit, parameter, model_.quantised))
      return weights_.read_block(unit, parameter, begin, block);
    std::vector<float> values(std::min(kNf4Block, of(unit, parameter).size() - begin));
    weights_.read(unit, parameter, begin, values);
    write_nf4_block(model_.quantised, values, offset(unit, parameter), block);
  }

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
      weights_.read(unit, parameter, at, values);
      for (std::size_t i = 0; i < values.size(); i += kScaleBlock, ++count)
        sum.add(nf4_scale(std::span(values).subspan(i, std::min(kScaleBlock, values.size() - i))));
    }
    return found->second = static_cast<float>(sum.round() / static_cast<double>(count));
  }

  const models::Model& model_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::size_t, std::size_t>, float> offsets_;
};

}  // namespace

std::unique_ptr<WeightSource> quantised_weights(std::unique_ptr<WeightSource> weights, const models::Model& model) {
  return std::make_unique<QuantisedWeights>(std::move(weights), model);
}

}  // namespace strata::runtime
