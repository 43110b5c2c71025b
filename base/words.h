#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

namespace strata {

// The parts of a text between separators, without an empty one at its end. Tables of many names store them as one text,
// separated by spaces. The text must outlive the result.
inline std::vector<std::string_view> split_list(std::string_view text, char separator = ' ') {
  std::vector<std::string_view> out;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find(separator, at), text.size());
    out.push_back(text.substr(at, end - at));
  }
  return out;
}

// True if `word` is one of the parts. No part of a table is empty.
inline bool has_word(std::string_view words, std::string_view word, char separator = ' ') {
  return std::ranges::any_of(split_list(words, separator), [&](std::string_view one) { return one == word; });
}

}  // namespace strata
