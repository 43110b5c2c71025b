#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::runtime {

// The kind of predictions that an evaluation scores.
enum class PredictionKind : std::uint8_t {
  tokens,     // a model that predicts tokens
  one_class,  // one class for each text or word
  many_classes,
  number,
  entities  // one_class for words whose classes are entity tags
};

// An evaluation result that evaluation.metric may name. Reports, checks and documentation of metrics all read this
// table.
struct EvaluationMetric {
  std::string_view name;
  bool greater_is_better;
  std::array<bool, 5> of;  // whether it is a metric of each PredictionKind
  static_assert(static_cast<int>(PredictionKind::entities) == 4);

  bool is_of(PredictionKind predictions) const { return of[static_cast<std::size_t>(predictions)]; }
};

// Does not throw: the key's reader has already refused unknown names.
const EvaluationMetric& metric_named(std::string_view name);
// The metrics of `predictions`, or all of them; eval_loss comes first.
std::vector<std::string_view> metric_names();
std::vector<std::string_view> metric_names(PredictionKind predictions);

}  // namespace strata::runtime
