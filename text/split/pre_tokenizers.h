#pragma once
// text/split/ cuts text into pieces before the model sees it. A stage is a PreTokenizer (pre_tokenizer.h), which also
// says where a text may be cut before it is complete; patterns (split_pattern.h) run on PCRE2 (regex.h), and
// split_behavior.h says what becomes of a match.

#include <memory>
#include <string>
#include <vector>

#include "text/json/json.h"
#include "text/split/pre_tokenizer.h"

namespace strata::text {

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  // The last stage is ByteLevel: what it hands on are plain bytes, and the model is to take each for its character of
  // GPT-2's alphabet.
  bool bytes = false;
};

// "pre_tokenizer" of a tokenizer.json, sequences flattened. bytes_wanted: the model can take plain bytes. Throws
// Error{usage} if a component is not supported, Error{corrupt} if it is malformed.
PreTokenizers make_pre_tokenizers(const Json& json, bool bytes_wanted);

// How Metaspace (as a pre-tokenizer and as a decoder) marks where a word begins.
struct MetaspaceOptions {
  enum class Prepend { always, first, never };
  std::string replacement;
  Prepend prepend;
  bool split;
};
MetaspaceOptions metaspace_options(const Json& json);

}  // namespace strata::text
