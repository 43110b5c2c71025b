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

// Borrows the weights of another source, which must outlive it.
class Borrowed final : public WeightSource {
 public:
  explicit Borrowed(const WeightSource& weights) : weights_(weights) {}
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    weights_.read(unit, parameter, begin, out);
  }
  bool quantised(std::size_t unit, std::size_t parameter, device::StorageFormat format) const override {
    return weights_.quantised(unit, parameter, format);
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    weights_.read_block(unit, parameter, begin, block);
  }

 private:
  const WeightSource& weights_;
};

class Magnitudes final : public WeightSource {
 public:
  Magnitudes(std::unique_ptr<WeightSource> weights, const models::Model& model)
      : weights_(std::move(weights)), values_(quantised_weights(std::make_unique<Borrowed>(*weights_), model)) {
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
    if (matrix.rows == 0) return weights_->read(unit, parameter, begin, out);
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
    if (matrices_[unit][parameter].rows == 0) weights_->prefetch(unit, parameter, begin, count);
  }
  bool quantised(std::size_t unit, std::size_t parameter, device::StorageFormat format) const override {
    return weights_->quantised(unit, parameter, format);
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    weights_->read_block(unit, parameter, begin, block);
  }
  std::vector<comm::Seen> seen() const override { return weights_->seen(); }
  std::vector<comm::Seen> seen_as_read() const override { return weights_->seen_as_read(); }
  std::vector<std::string> initialised() const override { return weights_->initialised(); }
  std::size_t rounded() const override { return weights_->rounded(); }
  std::vector<std::string> left_out() const override { return weights_->left_out(); }
  Base base() const override { return weights_->base(); }

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

  std::unique_ptr<WeightSource> weights_, values_;
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
