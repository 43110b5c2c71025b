#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/json.h"
#include "text/split/regex.h"

namespace strata::text {

// A part of a text on its way to the model. `first`: it begins where the whole text begins.
struct Piece {
  std::string_view text;
  bool first;
};

class PieceSink {
 public:
  virtual void take(Piece piece) = 0;

 protected:
  ~PieceSink() = default;
};

// Whether a text may be cut before a single separator that stands between two letters (Tokenizer::safe_cut).
enum class Cut {
  unsafe,  // the pieces may then be others
  keeps,   // the pieces are the same, except that one that reaches over the cut is cut too
  makes    // a piece always ends there, so the pieces are the same
};
Cut combined(Cut first, Cut second);

// One stage that splits pieces into smaller ones. Immutable.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Hands the non-empty parts of `piece` to `sink`, in order. They lie in `piece` or in `buffer`, until it returns.
  virtual void split(Piece piece, RegexMatcher& matcher, std::string& buffer, PieceSink& sink) const = 0;
  // separator: ' ' or '\n'.
  virtual Cut cut(char separator) const = 0;
  // Whether it hands on other characters in their place.
  virtual bool hides_separators() const { return false; }
};

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  // The last stage is ByteLevel: what it hands on are plain bytes, and the model is to take each for its character of
  // GPT-2's alphabet.
  bool bytes = false;
};

// "pre_tokenizer" of a tokenizer.json, sequences flattened. bytes_wanted: the model can take plain bytes. Throws
// Error{usage} where a component is not supported, Error{corrupt} where it is malformed.
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
