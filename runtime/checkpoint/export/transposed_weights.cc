#include "runtime/checkpoint/export/transposed_weights.h"

#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace strata::runtime {
namespace {

class TransposedWeights final : public WeightSource {
 public:
  TransposedWeights(const WeightSource& weights, const models::Model& from, const models::Model& to)
      : weights_(weights), from_(from) {
    STRATA_CHECK_EQ(from.units.size(), to.units.size());
    // Shapes do not tell: matrices may be square.
    for (std::size_t unit = 0; unit < from.units.size(); ++unit) {
      auto& turned = transposed_.emplace_back(from.units[unit]->parameters().size());
      const auto stored = from.units[unit]->linear_layers(), wanted = to.units[unit]->linear_layers();
      for (std::size_t layer = 0; layer < stored.size(); ++layer)
        for (std::size_t p = 0; p < turned.size(); ++p)
          if (from.units[unit]->parameters()[p].name == stored[layer].name + ".weight")
            turned[p] = stored[layer].input_major != wanted[layer].input_major;
    }
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    if (!transposed_[unit][parameter]) return weights_.read(unit, parameter, begin, out);
    const auto& shape = from_.units[unit]->parameters()[parameter].shape;
    const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
    const std::scoped_lock lock(mutex_);
    if (std::pair(unit, parameter) != kept_ || matrix_.empty()) {
      matrix_.resize(rows * columns);
      weights_.read(unit, parameter, 0, matrix_);
      kept_ = {unit, parameter};
    }
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = matrix_[(begin + i) % rows * columns + (begin + i) / rows];
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    if (!transposed_[unit][parameter]) weights_.prefetch(unit, parameter, begin, count);
  }
  std::vector<std::string> left_out() const override { return weights_.left_out(); }

 private:
  const WeightSource& weights_;
  const models::Model& from_;
  std::vector<std::vector<bool>> transposed_;  // by unit and parameter
  mutable std::mutex mutex_;
  mutable std::pair<std::size_t, std::size_t> kept_;  // unit and parameter of the matrix
  mutable std::vector<float> matrix_;
};

}  // namespace

std::unique_ptr<WeightSource> transposed_weights(const WeightSource& weights, const models::Model& from,
                                                 const models::Model& to) {
  return std::make_unique<TransposedWeights>(weights, from, to);
}

}  // namespace strata::runtime
