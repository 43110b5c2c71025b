#pragma once
// text/split/ cuts text into pieces before the model sees it. A stage is a PreTokenizer, which also says where an
// incomplete text may be cut. Patterns run on PCRE2 (regex.h).

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json/json.h"
#include "text/split/regex.h"

namespace strata::text {

// A part of a text on its way to the model. `first`: it begins at the start of the whole text.
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

// Whether a text may be cut before a single separator between two letters (Tokenizer::safe_cut).
enum class CutSafety {
  unsafe,  // the pieces may change
  keeps,   // the pieces stay the same, except that a piece across the cut is cut too
  makes    // a piece always ends at the cut, so the pieces stay the same
};
inline CutSafety combined(CutSafety first, CutSafety second) {
  if (first == CutSafety::unsafe || second == CutSafety::unsafe) return CutSafety::unsafe;
  return first == CutSafety::makes ? first : second;
}

// One stage that splits pieces into smaller ones. Immutable.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Passes the non-empty parts of `piece` to `sink`, in order. They are views into `piece` or `buffer`, valid until
  // this call returns.
  virtual void split(Piece piece, RegexMatcher& matcher, std::string& buffer, PieceSink& sink) const = 0;
  // separator: ' ' or '\n'.
  virtual CutSafety cut_safety(char separator) const = 0;
  // Whether it replaces separators with other characters.
  virtual bool hides_separators() const { return false; }
};

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  // The last stage is ByteLevel, and passes on plain bytes, which the model must take as characters of GPT-2's
  // alphabet.
  bool bytes = false;
};

// Builds the stages of "pre_tokenizer" in a tokenizer.json; sequences are flattened. bytes_wanted: the model accepts
// plain bytes. Throws Error{usage} if a component is not supported, Error{corrupt} if it is malformed.
PreTokenizers make_pre_tokenizers(const Json& json, bool bytes_wanted);

// How Metaspace marks the beginning of a word, as a pre-tokenizer and as a decoder.
struct MetaspaceOptions {
  enum class Prepend { always, first, never };
  std::string replacement;
  Prepend prepend;
  bool split;
};
MetaspaceOptions metaspace_options(const Json& json);

}  // namespace strata::text
