#pragma once
// text/classes/ turns classification data sets into tokens and labels: the contents of a record (here), its tokens, for
// single texts or pairs, truncated to a length (class_tokenizer.h), and the file of labels (label_writer.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/template/values/value.h"

namespace strata::text {

// A class, by name or number, or the target of a regression.
using LabelValue = std::variant<std::string, std::int64_t, double>;
// The value as it appears in messages and in lists of names.
std::string text_of(const LabelValue& value);

// The content of a document's label field.
struct DocumentLabels {
  enum class Kind : std::uint8_t {
    one,   // a class, or a number
    many,  // any number of classes
    words  // one per token; empty for tokens without a label
  };
  Kind kind = Kind::one;
  std::vector<std::optional<LabelValue>> values;
  bool one_per_word = false;   // for `many`: there are as many labels as words in the text, which may be what they
                               // stand for; for `one`: the label has as many words as the text
  bool several_words = false;  // for `one`: the name has several words
  // For `many`, if the list contains only 0 and 1 (or false and true): its elements in order. The list may be a vector
  // that says for each class whether the text belongs to it. `is_vector`: it can be nothing else, because it contains
  // true, 0.0, or a number twice.
  std::vector<std::uint8_t> flags = {};
  bool is_vector = false;
  std::uint64_t line = 0;  // the line in the input file; 0: unknown
};

// Which parts of a record are read.
struct LabelRules {
  std::vector<std::string> labels;  // field names; if there are several, each field is 0 or 1 for the class of its name
  std::string text = "text";        // a string, or a list of words with one label each
  std::optional<std::string> pair = std::nullopt;
  bool of_table = false;  // a table's fields are texts that may be numbers; in JSON, a string is a name
};

// A record's text, words or pair; without labels if `rules.labels` is empty. Views into the record.
struct ClassRecord {
  std::string_view text, pair;
  std::vector<std::string_view> words;
  bool has_words = false, has_pair = false;
  DocumentLabels labels;
};
// Throws a RecordFault for anything missing or wrong.
ClassRecord class_record(const jinja::Value& record, const LabelRules& rules);

}  // namespace strata::text
