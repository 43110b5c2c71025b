#include "runtime/weights/adapter/magnitudes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/weights/adapter/row_norms.h"
#include "runtime/weights/quantised_weights.h"

namespace strata::runtime {
namespace {

class Magnitudes final : public ForwardedWeights {
 public:
  Magnitudes(std::unique_ptr<WeightSource> weights, const models::Model& model)
      : ForwardedWeights(std::move(weights)),
        values_(quantised_weights(std::make_unique<ForwardedWeights>(weights_), model)) {
    for (const auto& unit : model.units) {
      auto& matrices = matrices_.emplace_back(unit->parameters().size());
      for (const auto& layer : unit->linear_layers()) {
        if (!layer.low_rank.dora) continue;
        const std::size_t weight = place_of(*unit, layer.name + ".weight");
        const models::Parameter& p = unit->parameters()[weight];
        const auto rows = static_cast<std::size_t>(p.shape[layer.input_major ? 1 : 0]);
        matrices[place_of(*unit, layer.name + std::string(models::kMagnitude))] = {
            weight, rows, p.size() / rows, layer.input_major, layer.input_major || p.slice.segments > 1};
      }
    }
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    const Matrix& matrix = matrices_[unit][parameter];
    if (matrix.rows == 0) return weights_.read(unit, parameter, begin, out);
    const auto read_matrix = [&](std::size_t at, std::span<float> values) {
      values_->read(unit, matrix.weight, at, values);
    };
    const auto norms = [&](std::size_t first, std::size_t count) {
      return row_norms({matrix.rows, matrix.columns, matrix.input_major}, first, count, read_matrix);
    };
    const auto narrow = [&](std::span<const double> from) {
      std::ranges::transform(from, out.begin(), [](double norm) { return static_cast<float>(norm); });
    };
    if (!matrix.at_once) return narrow(norms(begin, out.size()));
    const std::scoped_lock lock(mutex_);
    std::vector<double>& all = norms_[{unit, parameter}];
    if (all.empty()) all = norms(0, matrix.rows);
    narrow(std::span(all).subspan(begin, out.size()));
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    if (matrices_[unit][parameter].rows == 0) weights_.prefetch(unit, parameter, begin, count);
  }

 private:
  struct Matrix {
    std::size_t weight = 0, rows = 0, columns = 0;  // rows 0: the parameter is no magnitude
    bool input_major = false;
    bool at_once = false;  // rows do not lie side by side, so that reading some of them reads most of the matrix
  };
  static std::size_t place_of(const models::Unit& unit, const std::string& name) {
    const auto parameters = unit.parameters();
    const auto found = std::ranges::find(parameters, name, &models::Parameter::name);
    STRATA_CHECK(found != parameters.end());
    return static_cast<std::size_t>(found - parameters.begin());
  }

  std::unique_ptr<WeightSource> values_;
  std::vector<std::vector<Matrix>> matrices_;  // by unit and parameter
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> norms_;  // of those read at once
};

}  // namespace

std::unique_ptr<WeightSource> with_magnitudes(std::unique_ptr<WeightSource> weights, const models::Model& model) {
  const bool any = std::ranges::any_of(model.units, [](const auto& unit) {
    return std::ranges::any_of(unit->linear_layers(), [](const auto& layer) { return layer.low_rank.dora; });
  });
  if (!any) return weights;
  return std::make_unique<Magnitudes>(std::move(weights), model);
}

}  // namespace strata::runtime
