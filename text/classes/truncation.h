#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace strata::text {

// Which of two texts loses tokens if both are too long together, under the names of Hugging Face's tokenizers.
enum class Truncation {
  longest_first,  // the longer one, until both are as long
  only_first,
  only_second,
  none,  // do_not_truncate: that is refused
};
std::optional<Truncation> truncation(std::string_view name);
std::string_view name_of(Truncation truncation);
// Throws Error{usage} if it cuts a second text and there is none.
void require_possible(Truncation truncation, bool pairs);

// Tokens of a text, and of the second one of a pair.
struct TextLengths {
  std::size_t first = 0, second = 0;

  std::size_t sum() const { return first + second; }
};
// What is kept of `lengths`, so that the sum is at most `most`: the numbers of the tokenizers library. nullopt if the
// strategy cannot do that.
std::optional<TextLengths> truncated(const TextLengths& lengths, std::size_t most, Truncation truncation);

}  // namespace strata::text
