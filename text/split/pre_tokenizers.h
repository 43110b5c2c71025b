#pragma once
// text/split/ cuts text into pieces before the model sees it. A stage is a PreTokenizer (pre_tokenizer.h), which also
// says where an incomplete text may be cut. Patterns run on PCRE2 (regex.h).

#include <memory>
#include <string>
#include <vector>

#include "text/json/json.h"
#include "text/split/pre_tokenizer.h"

namespace strata::text {

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  // The last stage is ByteLevel. It passes on plain bytes, which the model has to take as characters of GPT-2's
  // alphabet.
  bool bytes = false;
};

// Builds the stages of "pre_tokenizer" in a tokenizer.json; sequences are flattened. bytes_wanted: the model accepts
// plain bytes. Throws Error{usage} if a component is not supported, Error{corrupt} if it is malformed.
PreTokenizers make_pre_tokenizers(const Json& json, bool bytes_wanted);

// How Metaspace (as a pre-tokenizer and as a decoder) marks the beginning of a word.
struct MetaspaceOptions {
  enum class Prepend { always, first, never };
  std::string replacement;
  Prepend prepend;
  bool split;
};
MetaspaceOptions metaspace_options(const Json& json);

}  // namespace strata::text
