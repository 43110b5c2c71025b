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

// What the labels of a data set came to.
struct LabelSummary {
  // As transformers' `problem_type` has it; token_classification has one class per word.
  std::string problem;
  // Of the classes, in the order of their numbers: numbers by value, other names by bytes; fields as they were given.
  // None of a regression.
  std::vector<std::string> names;
  std::vector<std::uint64_t> counts;  // labels of each class
  std::uint64_t documents = 0;
  // Of a regression; whether all of its numbers are whole, written with a point.
  double least = 0, most = 0;
  bool all_whole = false;
  // Each document has as many labels as its text has words.
  bool one_per_word = false;
  // Each document's labels were a list of 0 and 1, one for each class.
  bool vectors = false;
};

// Writes a line of JSON per document (docs/formats.md, "Labels") and counts what the labels are. The file is the
// caller's, to be committed after finish().
class LabelWriter {
 public:
  // fields: what --labels names.
  LabelWriter(AtomicFile& file, std::vector<std::string> fields);

  // Lists of 0 and 1 of one length are vectors, whose columns are the classes LABEL_0, LABEL_1 and so on; other lists
  // name classes. file: what messages name, beside the labels' line. Throws Error{corrupt} if a document's labels are
  // of another kind than those before, Error{usage} if lists may be either.
  void add(const DocumentLabels& labels, std::string_view file = {});
  // Throws Error{usage} if no label counts, or if names of classes seem to be lists of them.
  LabelSummary finish();
  // After finish(): XXH3-64 of the lines, 16 hex digits.
  std::string hash() const { return file_.hash(); }

 private:
  // What lists are, as far as those so far say: they name classes, are vectors, or may be either.
  enum class Lists : std::uint8_t { open, classes, vectors };
  using Place = std::string;

  void write(const std::string& line);
  void add_list(const DocumentLabels& labels, const Place& place);
  void add_vector(const std::vector<std::uint8_t>& flags);
  void add_values(const DocumentLabels& labels, const Place& place);
  void refuse_joined(const std::string& named) const;

  HashedFile file_;
  std::vector<std::string> fields_;
  DocumentLabels::Kind kind_ = DocumentLabels::Kind::one;
  std::uint64_t documents_ = 0;
  bool all_whole_ = true;
  // Of one label each, the first that is a number with a point, and the first that is none.
  struct First {
    std::string place, text;
  };
  std::optional<First> real_, name_, none_;  // none_: a document's label that says there is none
  bool number_ = false, only_nan_ = true;    // some label is a number; all that are none read "NaN" or so
  double least_ = 0, most_ = 0;
  bool fraction_ = false;
  std::map<std::string, std::uint64_t> classes_;
  bool too_many_ = false;
  Lists lists_ = Lists::open;
  std::size_t columns_ = 0;  // of the first list
  Place first_list_;
  // As far as there are lists: whether all that are not empty may be vectors of one length, and which one is empty.
  bool all_may_be_vectors_ = true;
  std::size_t length_ = 0;
  std::optional<Place> empty_list_;
  std::vector<bool> open_;  // of lists of two that may be either: whether each is [0, 1], not [1, 0]
  std::vector<std::uint64_t> of_column_;
  bool one_per_word_ = true;
  std::uint64_t several_words_ = 0;  // documents whose one label has several words, and the first of these
  std::string several_name_;
};

}  // namespace strata::text
