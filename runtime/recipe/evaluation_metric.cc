#include "runtime/recipe/evaluation_metric.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace strata::runtime {
namespace {

constexpr EvaluationMetric kMetrics[] = {
    // name, greater is better, for tokens, one class, many classes, a number, entities
    {"eval_loss", false, {true, true, true, true, true}},
    {"eval_perplexity", false, {true, false, false, false, false}},
    {"eval_accuracy", true, {false, true, true, false, true}},
    {"eval_f1", true, {false, true, true, false, true}},
    {"eval_precision", true, {false, true, true, false, true}},
    {"eval_recall", true, {false, true, true, false, true}},
    {"eval_f1_micro", true, {false, true, true, false, true}},
    {"eval_precision_micro", true, {false, true, true, false, true}},
    {"eval_recall_micro", true, {false, true, true, false, true}},
    {"eval_matthews", true, {false, true, false, false, true}},
    {"eval_roc_auc", true, {false, true, true, false, true}},
    {"eval_mse", false, {false, false, false, true, false}},
    {"eval_mae", false, {false, false, false, true, false}},
    {"eval_pearson", true, {false, false, false, true, false}},
    {"eval_overall_precision", true, {false, false, false, false, true}},
    {"eval_overall_recall", true, {false, false, false, false, true}},
    {"eval_overall_f1", true, {false, false, false, false, true}},
};

}  // namespace

const EvaluationMetric& metric_named(std::string_view name) {
  const auto* found = std::ranges::find(kMetrics, name, &EvaluationMetric::name);
  STRATA_CHECK(found != std::end(kMetrics));
  return *found;
}

std::vector<std::string_view> metric_names() {
  std::vector<std::string_view> out;
  for (const EvaluationMetric& metric : kMetrics) out.push_back(metric.name);
  return out;
}

std::vector<std::string_view> metric_names(PredictionKind predictions) {
  std::vector<std::string_view> out;
  for (const EvaluationMetric& metric : kMetrics)
    if (metric.is_of(predictions)) out.push_back(metric.name);
  return out;
}

}  // namespace strata::runtime
