#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

#include "text/json/json.h"
#include "text/split/pre_tokenizer.h"

namespace strata::text {

// How a splitting pattern's matches are divided among the pieces (SplitDelimiterBehavior in the tokenizers library).
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
Behavior behavior_of(const Json& json);

// Takes the matches of a pattern in a piece, from front to back, and passes on the parts that the behavior makes of
// them. inverted: matches and the text between them swap roles.
class BehaviorSplitter {
 public:
  BehaviorSplitter(Piece piece, Behavior behavior, bool inverted, PieceSink& sink)
      : piece_(piece), behavior_(behavior), inverted_(inverted), sink_(sink) {}

  void match(std::size_t begin, std::size_t end) {
    if (begin > at_) part(at_, begin, inverted_);
    if (end > begin) part(begin, end, !inverted_);
    at_ = end;
  }
  void finish() {
    if (at_ < piece_.text.size()) part(at_, piece_.text.size(), inverted_);
    flush();
  }

 private:
  void part(std::size_t begin, std::size_t end, bool is_match);
  void flush() {
    if (held_) emit(held_->begin, held_->end);
    held_.reset();
  }
  void emit(std::size_t begin, std::size_t end) {
    sink_.take({piece_.text.substr(begin, end - begin), piece_.first && begin == 0});
  }

  Piece piece_;
  Behavior behavior_;
  bool inverted_;
  PieceSink& sink_;
  std::size_t at_ = 0;
  std::optional<Match> held_;  // has begun and may still grow
  bool previous_ = false;      // the last part was a match
};

}  // namespace strata::text
