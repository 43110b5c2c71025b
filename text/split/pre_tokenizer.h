#pragma once
#include <string>
#include <string_view>

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

// Whether a text may be cut before a single separator between two letters (Tokenizer::safe_cut).
enum class Cut {
  unsafe,  // the pieces may change
  keeps,   // the pieces stay the same, except that a piece that spans the cut is cut too
  makes    // a piece always ends there, so the pieces stay the same
};
inline Cut combined(Cut first, Cut second) {
  if (first == Cut::unsafe || second == Cut::unsafe) return Cut::unsafe;
  return first == Cut::makes ? first : second;
}

// One stage that splits pieces into smaller ones. Immutable.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Passes the non-empty parts of `piece` to `sink`, in order. They are views into `piece` or `buffer`, and valid until
  // this returns.
  virtual void split(Piece piece, RegexMatcher& matcher, std::string& buffer, PieceSink& sink) const = 0;
  // separator: ' ' or '\n'.
  virtual Cut cut(char separator) const = 0;
  // Whether it replaces separators by other characters.
  virtual bool hides_separators() const { return false; }
};

}  // namespace strata::text
