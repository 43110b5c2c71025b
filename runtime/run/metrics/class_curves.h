#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace strata::runtime {

// log(p / (1 - p)) of each class's probability p, of a softmax of scores: it orders documents as p does, also where p
// is 1 to the last bit.
void log_odds(std::span<const float> scores, std::span<double> out);

// The area under the curve of true positives over false ones, of two lists of scores, which it sorts; ties count half.
// nullopt if one is empty.
std::optional<double> area_under_curve(std::span<double> positive, std::span<double> negative);

// Areas under the curves of some classes, each against the rest: a column of scores for each of them.
class ClassCurves {
 public:
  // Classes first, first + step, ... below `classes`. Room for that many columns of `rows` doubles, and for a label of
  // each row. many: labels have bit c for class c.
  ClassCurves(std::span<double> columns, std::span<std::int32_t> labels, std::size_t first, std::size_t step,
              std::size_t classes, bool many);

  void clear() { used_ = 0; }
  // scores: of all classes, by which documents are ordered.
  void add(std::int32_t label, std::span<const double> scores);
  // Of each of its classes; nullopt: none or all of the rows are of it. Leaves the columns in another order.
  std::vector<std::optional<double>> areas();

 private:
  bool is(std::int32_t label, std::size_t c) const;

  std::span<double> columns_;
  std::span<std::int32_t> labels_;
  std::size_t first_, step_, classes_, used_ = 0;
  bool many_;
};

}  // namespace strata::runtime
