#include "text/split/split_behavior.h"

namespace strata::text {

Behavior behavior_of(const Json& json) {
  const std::string_view name = json.text();
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  json.unsupported(fmt::format("the behavior {}", shortened(name)));
}

void BehaviorSplitter::part(std::size_t begin, std::size_t end, bool is_match) {
  switch (behavior_) {
    case Behavior::removed:
      if (!is_match) emit(begin, end);
      return;
    case Behavior::isolated:
      return emit(begin, end);
    case Behavior::contiguous:
      if (held_ && is_match == previous_) {
        held_->end = end;
      } else {
        flush();
        held_ = Match{begin, end};
      }
      break;
    case Behavior::merged_with_previous:
      if (held_ && is_match && !previous_) {
        held_->end = end;
      } else {
        flush();
        held_ = Match{begin, end};
      }
      break;
    case Behavior::merged_with_next:
      // Only a match is ever held back.
      if (is_match) {
        flush();
        held_ = Match{begin, end};
      } else {
        emit(held_ ? held_->begin : begin, end);
        held_.reset();
      }
      break;
  }
  previous_ = is_match;
}

}  // namespace strata::text
