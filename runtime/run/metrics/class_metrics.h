#pragma once
// runtime/run/metrics/ says how good a classifier is: numbers of scikit-learn (here, class_curves.h) and of seqeval
// (entity_metrics.h), from what all rows came to. It knows no model; score_collector.h gathers the rows of all ranks.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace strata::runtime {

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
  // [label][prediction], of one class each; empty: there are too many.
  std::vector<std::vector<std::uint64_t>> confusion;
};

// Counts what documents are and what was said of them: whole numbers, so that nothing depends on their order.
class ClassTally {
 public:
  enum class Confusion : std::uint8_t { counted, left_out };
  ClassTally(std::size_t classes, Confusion confusion);

  void clear();
  // A document of one class.
  void add_one(std::size_t label, std::size_t said);
  // Of any number of classes: bit c is class c.
  void add_many(std::uint32_t label, std::uint32_t said);

  // Of add_one() alone.
  ClassMetrics of_one() const;
  // Of add_many() alone.
  ClassMetrics of_many() const;

 private:
  // Of a class: documents of it that were found, that were said to be of it, and that there are.
  struct Counts {
    std::uint64_t found = 0, said = 0, there = 0;
    ClassQuality quality() const;
  };
  // Averages over classes leave out those that no document is or was said to be of, if `among` says so: scikit-learn
  // does of one class each, where it takes the classes from the documents.
  enum class Among : std::uint8_t { all, seen };
  ClassMetrics with_averages(Among among) const;
  double matthews() const;

  std::vector<Counts> counts_;
  std::uint64_t right_ = 0, documents_ = 0;
  std::vector<std::vector<std::uint64_t>> confusion_;
};

// The class of the highest score, of equal ones the first.
std::size_t best_of(std::span<const float> scores);
// The classes with scores of at least 0, which is a probability of one half: bit c is class c.
std::uint32_t all_of(std::span<const float> scores);

// Of a regression.
struct RegressionMetrics {
  double mean_squared_error = 0, mean_absolute_error = 0;
  std::optional<double> pearson;  // nullopt: one of both is constant
};
RegressionMetrics metrics_of_numbers(std::span<const float> predictions, std::span<const float> labels);

}  // namespace strata::runtime
