#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace strata::text {

// Which of two texts loses tokens if both together are too long, with the names of Hugging Face's tokenizers.
enum class Truncation {
  longest_first,  // the longer one, until both have the same length
  only_first,
  only_second,
  none,  // do_not_truncate: text that is too long is refused
};
std::optional<Truncation> truncation(std::string_view name);
std::string_view name_of(Truncation truncation);
// Throws Error{usage} if the strategy truncates a second text and there is none.
void require_possible(Truncation truncation, bool pairs);

// The token counts of a text, and of the second one of a pair.
struct TextLengths {
  std::size_t first = 0, second = 0;

  std::size_t sum() const { return first + second; }
};
// The lengths that are kept of `lengths`, so that their sum is at most `most`. They are those of the tokenizers
// library. nullopt if the strategy cannot do that.
std::optional<TextLengths> truncated(const TextLengths& lengths, std::size_t most, Truncation truncation);

}  // namespace strata::text
