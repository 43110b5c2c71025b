#pragma once
// text/classes/ makes tokens and labels of data sets for classification: what a record says (here), its tokens, alone
// or as a pair, cut to a length (class_tokenizer.h, truncation.h), and the file of labels (label_writer.h).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/template/values/value.h"

namespace strata::text {

// A class by name, or a number: a class's, or what a regression aims at.
using LabelValue = std::variant<std::string, std::int64_t, double>;
// As it stands in messages and lists of names.
std::string text_of(const LabelValue& value);

// What a document's label field says.
struct DocumentLabels {
  enum class Kind : std::uint8_t {
    one,   // a class, or a number
    many,  // any number of classes
    words  // one per token: nothing where it does not count
  };
  Kind kind = Kind::one;
  std::vector<std::optional<LabelValue>> values;
  bool one_per_word = false;   // of many: as many as the text has words, which may be what is meant; of one: its words
  bool several_words = false;  // of one: a name of several words
  // Of many, if the list has nothing but 0 and 1 (false and true): each of them, in its place. It may be a vector that
  // says of each class whether the text is of it; `is_vector`: it is nothing else (true, 0.0, or a number twice).
  std::vector<std::uint8_t> flags = {};
  bool is_vector = false;
  std::uint64_t line = 0;  // of its file; 0: unknown
};

// What of a record is read.
struct LabelRules {
  std::vector<std::string> labels;  // fields; of several, each says 0 or 1 about the class of its name
  std::string text = "text";        // a string, or a list of words, of which each has a label
  std::optional<std::string> pair = std::nullopt;
  bool of_table = false;  // its fields are texts that may be numbers; a string of JSON is a name
};

// A record's text, words or pair, without its labels if `rules.labels` is empty. Views into the record.
struct ClassRecord {
  std::string_view text, pair;
  std::vector<std::string_view> words;
  bool has_words = false, has_pair = false;
  DocumentLabels labels;
};
// Throws RecordFault: what is not there, or not what it should be.
ClassRecord class_record(const jinja::Value& record, const LabelRules& rules);

}  // namespace strata::text
