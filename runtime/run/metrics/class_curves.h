#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace strata::runtime {

// log(p / (1 - p)) of each class's probability p under a softmax of scores. It orders documents as p does, even if p
// rounds to 1.
void log_odds(std::span<const float> scores, std::span<double> out);

// The area under the ROC curve (true positives over false positives) of two lists of scores, which it sorts. Ties count
// half. nullopt if a list is empty.
std::optional<double> area_under_curve(std::span<double> positive, std::span<double> negative);

// Areas under the ROC curves of some classes, each against the rest, with one column of scores per class.
class ClassCurves {
 public:
  // Covers the classes first, first + step, ... below `classes`. columns has room for that many columns of `rows`
  // doubles, labels for one label per row. many: a label is a word for each 32 classes, whose bits are the classes;
  // otherwise it is the class.
  ClassCurves(std::span<double> columns, std::span<std::uint32_t> labels, std::size_t first, std::size_t step,
              std::size_t classes, bool many);

  void clear() { used_ = 0; }
  // scores: one of each class; documents are ordered by them.
  void add(std::span<const std::uint32_t> label, std::span<const double> scores);
  // The area of each of its classes; nullopt if none or all of the rows belong to it. Reorders the columns.
  std::vector<std::optional<double>> areas();

 private:
  bool is(std::size_t row, std::size_t c) const;

  std::span<double> columns_;
  std::span<std::uint32_t> labels_;
  std::size_t first_, step_, classes_;
  bool many_;
  std::size_t label_words_, rows_, used_ = 0;
};

}  // namespace strata::runtime
