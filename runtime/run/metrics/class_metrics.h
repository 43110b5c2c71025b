#pragma once
// runtime/run/metrics/ measures the quality of a classifier with scikit-learn's metrics and seqeval's. This header does
// not depend on models; score_collector.h gathers the scores of all ranks.

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

// Numbers of documents of a class: correctly predicted to be in it, predicted to be in it, and in it. Or the same for
// entities.
struct ClassCounts {
  std::uint64_t found = 0, predicted = 0, labelled = 0;
  ClassCounts& operator+=(const ClassCounts& other);
  ClassQuality quality() const;
};

struct ClassMetrics {
  double accuracy = 0;  // with several classes per document: documents with all classes right
  std::vector<ClassQuality> classes;
  ClassQuality macro, micro;
  // For one class per document: classes that no document has and that were predicted for none. macro leaves them out.
  std::vector<std::size_t> unseen;
  std::optional<double> matthews;  // for one class per document (Gorodkin 2004)
  // [label][prediction], for one class per document; empty if there are too many classes.
  std::vector<std::vector<std::uint64_t>> confusion;
};

// Counts labels and predictions in integers, so the order of documents does not matter.
class ClassTally {
 public:
  enum class Confusion : std::uint8_t { counted, left_out };
  ClassTally(std::size_t classes, Confusion confusion);

  void clear();
  // Adds a document with one class.
  void add_one(std::size_t label, std::size_t prediction);
  // Adds a document with any number of classes: bit c % 32 of word c / 32 is class c.
  void add_many(std::span<const std::uint32_t> label, std::span<const std::uint32_t> prediction);

  // Metrics of documents from add_one() only.
  ClassMetrics of_one() const;
  // Metrics of documents from add_many() only.
  ClassMetrics of_many() const;

 private:
  // With `seen`, averages leave out classes that no document has and that were predicted for none. scikit-learn does so
  // for one class per document, because it takes the classes from the documents.
  enum class Among : std::uint8_t { all, seen };
  ClassMetrics with_averages(Among among) const;
  double matthews() const;

  std::vector<ClassCounts> counts_;  // one per class
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

// An entity of a text: its words [begin, end) and the number of its type.
struct Entity {
  std::size_t begin, end, type;
  bool operator==(const Entity&) const = default;
};

// Finds entities in the tags of words as seqeval's default mode and conlleval do. An entity begins at "B-", and at an
// "I-" that follows a word outside of entities or of another type. It ends before the next entity, and before "O".
class EntityTags {
 public:
  // names: the classes' names; models::are_entity_tags() must hold for them.
  explicit EntityTags(std::span<const std::string> names);
  std::vector<Entity> entities(std::span<const std::size_t> words) const;

 private:
  struct Tag {
    bool inside, begins;
    std::size_t type;
  };
  std::vector<Tag> tags_;
};

// Counts entities over texts. An entity is found if begin, end and type are right.
class EntityTally {
 public:
  explicit EntityTally(std::span<const std::string> names) : tags_(names) {}
  void clear() { counts_ = {}; }
  // The words of a text that have labels, in order: their labels and their predictions.
  void add(std::span<const std::size_t> labels, std::span<const std::size_t> predictions);
  // Over all types.
  const ClassCounts& counts() const { return counts_; }

 private:
  EntityTags tags_;
  ClassCounts counts_;
};

}  // namespace strata::runtime
