#pragma once
// runtime/run/metrics/ says how good a classifier is, with scikit-learn's metrics (here, class_curves.h) and seqeval's
// (entity_metrics.h). It knows no model; score_collector.h gathers the rows of all ranks.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace strata::runtime {

// Precision, recall and F1; 0 if they divide by 0, as with scikit-learn's zero_division=0.
struct ClassQuality {
  double precision = 0, recall = 0, f1 = 0;
  std::uint64_t support = 0;  // documents of the class
};

struct ClassMetrics {
  double accuracy = 0;  // with several classes per document: documents with all classes right
  std::vector<ClassQuality> classes;
  ClassQuality macro, micro;
  // For one class per document: classes that no document has and none was predicted to have. macro leaves them out.
  std::vector<std::size_t> unseen;
  std::optional<double> matthews;  // for one class per document (Gorodkin 2004)
  // [label][prediction], for one class per document; empty if there are too many classes.
  std::vector<std::vector<std::uint64_t>> confusion;
};

// Counts labels and predictions in whole numbers, so that the order of documents does not matter.
class ClassTally {
 public:
  enum class Confusion : std::uint8_t { counted, left_out };
  ClassTally(std::size_t classes, Confusion confusion);

  void clear();
  // Adds a document with one class.
  void add_one(std::size_t label, std::size_t said);
  // Adds a document with any number of classes: bit c % 32 of word c / 32 is class c.
  void add_many(std::span<const std::uint32_t> label, std::span<const std::uint32_t> said);

  // Metrics of documents from add_one() only.
  ClassMetrics of_one() const;
  // Metrics of documents from add_many() only.
  ClassMetrics of_many() const;

 private:
  // Per class: its documents that were found, documents predicted to be in it, and its documents.
  struct Counts {
    std::uint64_t found = 0, said = 0, there = 0;
    ClassQuality quality() const;
  };
  // With `seen`, averages leave out classes that no document has or was predicted to have. scikit-learn does so for one
  // class per document, because it takes the classes from the documents.
  enum class Among : std::uint8_t { all, seen };
  ClassMetrics with_averages(Among among) const;
  double matthews() const;

  std::vector<Counts> counts_;
  std::uint64_t right_ = 0, documents_ = 0;
  std::vector<std::vector<std::uint64_t>> confusion_;
};

// The class with the highest score, the first if several are equal.
std::size_t best_of(std::span<const float> scores);
// Writes the classes with scores of at least 0, that is, a probability of at least one half: bit c % 32 of word c / 32
// is class c.
void all_of(std::span<const float> scores, std::span<std::uint32_t> out);

// The metrics of a regression.
struct RegressionMetrics {
  double mean_squared_error = 0, mean_absolute_error = 0;
  std::optional<double> pearson;  // nullopt: predictions or labels are constant
};
RegressionMetrics metrics_of_numbers(std::span<const float> predictions, std::span<const float> labels);

}  // namespace strata::runtime
