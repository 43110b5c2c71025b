#include "runtime/checkpoint/export/transposed_weights.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"

namespace strata::runtime {
namespace {

class TransposedWeights final : public WeightSource {
 public:
  TransposedWeights(const WeightSource& weights, const models::Model& from, const models::Model& to)
      : weights_(weights), from_(from), to_(to) {
    STRATA_CHECK_EQ(from.units.size(), to.units.size());
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    const auto &stored = shape(from_, unit, parameter), &wanted = shape(to_, unit, parameter);
    if (stored == wanted) return weights_.read(unit, parameter, begin, out);
    STRATA_CHECK(stored.size() == 2 && stored[0] == wanted[1] && stored[1] == wanted[0]);
    const auto rows = static_cast<std::size_t>(stored[0]), columns = static_cast<std::size_t>(stored[1]);
    const std::scoped_lock lock(mutex_);
    if (std::pair(unit, parameter) != kept_ || matrix_.empty()) {
      matrix_.resize(rows * columns);
      weights_.read(unit, parameter, 0, matrix_);
      kept_ = {unit, parameter};
    }
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = matrix_[(begin + i) % rows * columns + (begin + i) / rows];
  }
  std::vector<std::string> left_out() const override { return weights_.left_out(); }

 private:
  static const std::vector<std::int64_t>& shape(const models::Model& model, std::size_t unit, std::size_t parameter) {
    return model.units[unit]->parameters()[parameter].shape;
  }

  const WeightSource& weights_;
  const models::Model &from_, &to_;
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
