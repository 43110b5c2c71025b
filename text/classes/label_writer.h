#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/atomic_file.h"
#include "text/classes/record_labels.h"
#include "text/token_writer.h"

namespace strata::text {

// A label that appears to name several classes.
struct JoinedLabel {
  std::string name;                // as written in the data
  std::vector<std::string> parts;  // the classes that it appears to name
  char separator = ',';            // the separator between them
  std::uint64_t more = 0;          // the number of other labels that look like this one
  bool tags = false;               // the parts are tags of words: "O", "B-TYPE", "I-TYPE"
};

// The first of `classes` (names, with the number of labels of each) that appears to be several classes. A label does if
// (1) all its parts between commas, semicolons or bars are classes themselves, or integers; (2) the same holds between
// spaces, slashes, "+" or "&", which also occur in names, for at least three labels; (3) the labels are made of far
// fewer parts, each of which occurs in several labels; or (4) all its parts are tags.
std::optional<JoinedLabel> joined_label(const std::map<std::string, std::uint64_t>& classes);

// The summary of a data set's labels.
struct LabelSummary {
  // transformers' `problem_type`; or token_classification, with one class per word.
  std::string problem;
  // The classes by number. Numbers are sorted by value and other names by bytes; fields keep the given order. Empty for
  // a regression.
  std::vector<std::string> names;
  std::vector<std::uint64_t> counts;  // the number of labels of each class
  std::uint64_t documents = 0;
  // Only for a regression: the range, and whether all numbers are integers that are written with a decimal point.
  double least = 0, most = 0;
  bool all_whole = false;
  // Each document has as many labels as its text has words.
  bool one_per_word = false;
  // The labels of each document were a list of 0 and 1, one per class.
  bool vectors = false;
};

// Writes one line of JSON per document (docs/formats.md, "Labels"), and summarizes the labels. The caller owns the file
// and commits it after finish().
class LabelWriter {
 public:
  // fields: the names given to --labels.
  LabelWriter(AtomicFile& file, std::vector<std::string> fields);

  // Lists of 0 and 1 with one common length are vectors, whose columns are the classes LABEL_0, LABEL_1 and so on.
  // Other lists name classes. file: named in messages, together with the label's line. Throws Error{corrupt} if a
  // document's labels differ in kind from the earlier ones, and Error{usage} if lists may have either kind.
  void add(const DocumentLabels& labels, std::string_view file = {});
  // Throws Error{usage} if there are no labels, or if class names appear to be lists of classes.
  LabelSummary finish();
  // After finish(): the XXH3-64 of the lines, 16 hex digits.
  std::string hash() const { return file_.hash(); }

 private:
  // How the lists so far can be interpreted: as names of classes, as vectors, or either way.
  enum class Lists : std::uint8_t { open, classes, vectors };

  void write(const std::string& line);
  void add_list(const DocumentLabels& labels, const std::string& place);
  void add_vector(const std::vector<std::uint8_t>& flags);
  void add_values(const DocumentLabels& labels, const std::string& place);
  void refuse_joined(const std::string& named) const;

  HashedFile file_;
  std::vector<std::string> fields_;
  DocumentLabels::Kind kind_ = DocumentLabels::Kind::one;
  std::uint64_t documents_ = 0;
  bool all_whole_ = true;
  // Among documents with one label: the first that is a number with a decimal point, and the first that is not a
  // number.
  struct First {
    std::string place, text;
  };
  std::optional<First> real_, name_, none_;  // none_: the first label that says "no label"
  bool number_ = false, only_nan_ = true;    // some label is a number; all others are "NaN" or similar
  double least_ = 0, most_ = 0;
  bool fraction_ = false;
  std::map<std::string, std::uint64_t> classes_;
  bool too_many_ = false;
  Lists lists_ = Lists::open;
  std::size_t columns_ = 0;  // the length of the first list
  std::string first_list_;
  // Whether all non-empty lists so far may be vectors of one length; that length; and the first empty list.
  bool all_may_be_vectors_ = true;
  std::size_t length_ = 0;
  std::optional<std::string> empty_list_;
  std::vector<bool> open_;  // lists of two that may be either: true for [0, 1], false for [1, 0]
  std::vector<std::uint64_t> column_counts_;
  bool one_per_word_ = true;
  std::uint64_t several_words_ = 0;  // documents whose single label has several words
  std::string several_name_;         // the first such label
};

}  // namespace strata::text
