#pragma once
// runtime/run/metrics/ says how good a classifier is: numbers of scikit-learn, from the scores of all documents. It
// knows no model and no ranks; who evaluates gathers the scores.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace strata::runtime {

// What a model said of documents and what they are. Scores are logits, [documents, classes].
struct ClassScores {
  std::size_t classes = 0;
  std::vector<float> scores;
  std::vector<std::int32_t> labels;  // of one class each; or, of many, bit c of class c

  std::size_t documents() const { return labels.size(); }
  std::span<const float> of(std::size_t document) const {
    return std::span(scores).subspan(document * classes, classes);
  }
};

// Precision, recall and F1, 0 where they divide by 0, as scikit-learn's zero_division=0.
struct ClassQuality {
  double precision = 0, recall = 0, f1 = 0;
  std::uint64_t support = 0;  // documents of the class
};

struct ClassMetrics {
  double accuracy = 0;  // of many classes: documents of which all are right
  std::vector<ClassQuality> classes;
  ClassQuality macro, micro;
  // Of one class each: classes that no document is of and none was said to be of, which macro leaves out.
  std::vector<std::size_t> unseen;
  std::optional<double> matthews;  // of one class each (Gorodkin 2004)
  // Area under the curve; of more than two classes the mean of each against the rest. nullopt: a class has no document,
  // or all of them, so that there is no curve; `without_curve` names the first such class.
  std::optional<double> roc_auc;
  std::size_t without_curve = 0;
  // [label][prediction], of one class each.
  std::vector<std::vector<std::uint64_t>> confusion;
};

// Each document is of one class; the highest score counts, of equal ones the first.
ClassMetrics metrics_of_one(const ClassScores& scores);
// Each document is of any number of classes: those with scores of at least 0, which is a probability of one half.
ClassMetrics metrics_of_many(const ClassScores& scores);

// Of a regression.
struct RegressionMetrics {
  double mean_squared_error = 0, mean_absolute_error = 0;
  std::optional<double> pearson;  // nullopt: one of both is constant
};
RegressionMetrics metrics_of_numbers(std::span<const float> predictions, std::span<const float> labels);

// The area under the curve of true positives over false ones; nullopt if all labels are alike. Ties count half.
std::optional<double> area_under_curve(std::span<const double> scores, const std::vector<bool>& positive);

}  // namespace strata::runtime
