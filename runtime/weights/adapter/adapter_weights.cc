#include "runtime/weights/adapter/adapter_weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/weights/quantised_weights.h"

namespace strata::runtime {

namespace {

// The place of a tensor in a model.
struct TensorLocation {
  std::size_t unit, parameter;
};

std::map<std::string, TensorLocation> places_of(const models::Model& model) {
  std::map<std::string, TensorLocation> out;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit)
    for (std::size_t p = 0; p < model.units[unit]->parameters().size(); ++p)
      out.emplace(model.units[unit]->parameters()[p].name, TensorLocation{unit, p});
  return out;
}

class MergedWeights final : public ForwardedWeights {
 public:
  MergedWeights(std::unique_ptr<WeightSource> weights, const models::Model& adapted, const models::Model& plain,
                bool merges)
      : ForwardedWeights(std::move(weights)) {
    const std::map<std::string, TensorLocation> places = places_of(adapted);
    std::map<std::string, Delta> deltas;
    for (const auto& unit : adapted.units)
      for (const auto& layer : unit->linear_layers()) {
        if (layer.low_rank.rank == 0 || !merges) continue;
        const TensorLocation a = places.at(layer.name + ".lora_A.weight"), b = places.at(layer.name + ".lora_B.weight");
        const bool dora = layer.low_rank.dora;
        deltas[layer.name + ".weight"] = {
            size_of(adapted, b) / layer.low_rank.rank,
            size_of(adapted, a) / layer.low_rank.rank,
            layer.low_rank.rank,
            layer.low_rank.scale,
            layer.input_major,
            a,
            b,
            places.at(layer.name + ".weight"),
            dora ? std::optional(places.at(layer.name + std::string(models::kMagnitude))) : std::nullopt};
      }
    for (const auto& unit : plain.units) {
      auto& sources = sources_.emplace_back();
      for (const models::Parameter& p : unit->parameters()) {
        const auto delta = deltas.find(p.name);
        sources.push_back({places.at(p.name), delta == deltas.end() ? std::nullopt : std::optional(delta->second)});
      }
    }
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    const Source& source = sources_[unit][parameter];
    weights_.read(source.place.unit, source.place.parameter, begin, out);
    if (!source.delta) return;
    const Delta& d = *source.delta;
    const auto factors = factors_of(d);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t at = begin + i;
      if (d.magnitude)
        out[i] = static_cast<float>(factors->ratios[d.row(at)] * (double{out[i]} + factors->delta(d, at)));
      else
        out[i] += static_cast<float>(factors->delta(d, at));
    }
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    const TensorLocation& place = sources_[unit][parameter].place;
    weights_.prefetch(place.unit, place.parameter, begin, count);
  }
  // Only the model's own weights are quantised, not the adapter.
  bool quantised(std::size_t unit, std::size_t parameter, device::StorageFormat format) const override {
    const TensorLocation& place = sources_[unit][parameter].place;
    return weights_.quantised(place.unit, place.parameter, format);
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    const TensorLocation& place = sources_[unit][parameter].place;
    weights_.read_block(place.unit, place.parameter, begin, block);
  }
  std::string unpacked_dtype(std::size_t unit, std::size_t parameter) const override {
    const TensorLocation& place = sources_[unit][parameter].place;
    return weights_.unpacked_dtype(place.unit, place.parameter);
  }
  // Merged weights are in no file, and have no base.
  std::vector<comm::FileFingerprint> fingerprints() const override { return {}; }
  std::vector<comm::FileFingerprint> fingerprints_as_read() const override { return {}; }
  Base base() const override { return {}; }

 private:
  struct Delta {
    std::size_t out, in, rank;
    float scale;
    bool input_major;
    TensorLocation a, b, weight;
    std::optional<TensorLocation> magnitude;  // DoRA's

    std::size_t row(std::size_t at) const { return input_major ? at % out : at / in; }
    std::size_t column(std::size_t at) const { return input_major ? at / out : at % in; }
  };
  struct Source {
    TensorLocation place;
    std::optional<Delta> delta;
  };
  struct Factors {
    TensorLocation of;
    std::vector<float> a, b;
    std::vector<double> ratios;  // DoRA: a row's magnitude divided by its norm

    double delta(const Delta& d, std::size_t at) const {
      double sum = 0;
      for (std::size_t r = 0; r < d.rank; ++r)
        sum += double{b[d.row(at) * d.rank + r]} * double{a[r * d.in + d.column(at)]};
      return double{d.scale} * sum;
    }
  };

  static std::size_t size_of(const models::Model& model, const TensorLocation& place) {
    return model.units[place.unit]->parameters()[place.parameter].size();
  }
  // The pieces of a tensor are read one after another, so its factors are read once and kept.
  std::shared_ptr<const Factors> factors_of(const Delta& d) const {
    const std::scoped_lock lock(mutex_);
    if (!factors_ || factors_->of.unit != d.a.unit || factors_->of.parameter != d.a.parameter) {
      auto read = std::make_shared<Factors>(
          Factors{d.a, std::vector<float>(d.rank * d.in), std::vector<float>(d.out * d.rank)});
      weights_.read(d.a.unit, d.a.parameter, 0, read->a);
      weights_.read(d.b.unit, d.b.parameter, 0, read->b);
      if (d.magnitude) read->ratios = ratios_of(d, *read);
      factors_ = std::move(read);
    }
    return factors_;
  }

  std::vector<double> ratios_of(const Delta& d, const Factors& factors) const {
    std::vector<float> magnitudes(d.out);
    weights_.read(d.magnitude->unit, d.magnitude->parameter, 0, magnitudes);
    std::vector<double> ratios =
        row_norms({d.out, d.in, d.input_major}, 0, d.out, [&](std::size_t at, std::span<float> values) {
          weights_.read(d.weight.unit, d.weight.parameter, at, values);
          for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<float>(factors.delta(d, at + i));
        });
    for (std::size_t o = 0; o < d.out; ++o) ratios[o] = ratios[o] > 0 ? magnitudes[o] / ratios[o] : 0;
    return ratios;
  }

  std::vector<std::vector<Source>> sources_;  // by unit and parameter of the plain model
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Factors> factors_;
};

}  // namespace

std::unique_ptr<WeightSource> merged_weights(std::unique_ptr<WeightSource> weights, const models::Model& adapted,
                                             const models::Model& plain) {
  return std::make_unique<MergedWeights>(std::move(weights), adapted, plain, true);
}

std::unique_ptr<WeightSource> without_adapter(std::unique_ptr<WeightSource> weights, const models::Model& adapted,
                                              const models::Model& plain) {
  return std::make_unique<MergedWeights>(std::move(weights), adapted, plain, false);
}

void verify_base(const WeightSource& weights, const models::Model& model) {
  if (weights.base().hash.empty()) return;
  constexpr std::size_t kAtOnce = std::size_t{1} << 20;
  BaseHash hash(model);
  std::vector<float> values;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    const auto parameters = model.units[unit]->parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (parameters[p].trained()) continue;
      for (std::size_t at = 0; at < parameters[p].size(); at += kAtOnce) {
        values.resize(std::min(kAtOnce, parameters[p].size() - at));
        weights.read(unit, p, at, values);
        hash.add(unit, p, at, values);
      }
    }
  }
  require_base(weights, hash.of_rank());
}

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
    std::size_t weight = 0, rows = 0, columns = 0;  // rows 0: the parameter is not a magnitude
    bool input_major = false;
    bool at_once = false;  // rows are not contiguous, so reading some of them reads most of the matrix
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
  mutable std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> norms_;  // of matrices read at once
};

}  // namespace

std::unique_ptr<WeightSource> with_magnitudes(std::unique_ptr<WeightSource> weights, const models::Model& model) {
  const bool any = std::ranges::any_of(model.units, [](const auto& unit) {
    return std::ranges::any_of(unit->linear_layers(), [](const auto& layer) { return layer.low_rank.dora; });
  });
  if (!any) return weights;
  return std::make_unique<Magnitudes>(std::move(weights), model);
}

std::vector<double> row_norms(const MatrixShape& shape, std::size_t first, std::size_t count,
                              const std::function<void(std::size_t, std::span<float>)>& read) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 18;
  const auto [rows, columns, input_major] = shape;
  std::vector<double> squares(count);
  std::vector<float> values;
  const std::size_t begin = input_major ? 0 : first * columns;
  const std::size_t end = input_major ? rows * columns : (first + count) * columns;
  for (std::size_t at = begin; at < end; at += values.size()) {
    values.resize(std::min(kAtOnce, end - at));
    read(at, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t row = input_major ? (at + i) % rows : (at + i) / columns;
      if (row >= first && row < first + count) squares[row - first] += double{values[i]} * values[i];
    }
  }
  std::ranges::transform(squares, squares.begin(), [](double square) { return std::sqrt(square); });
  return squares;
}

}  // namespace strata::runtime
