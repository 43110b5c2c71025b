#include "text/pipeline/added_tokens.h"

#include <algorithm>

#include "text/subwords/vocabulary.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace strata::text {

std::vector<AddedToken> read_added_tokens(const Json& json) {
  std::vector<AddedToken> out;
  json.each([&](const Json& token) {
    const bool special = token.flag_or("special", false);
    out.push_back({.id = static_cast<std::uint32_t>(token.at("id").integer(0, kMaxId)),
                   .content = std::string(token.at("content").text()),
                   .special = special,
                   .normalized = token.flag_or("normalized", !special),
                   .left_strip = token.flag_or("lstrip", false),
                   .right_strip = token.flag_or("rstrip", false),
                   .single_word = token.flag_or("single_word", false)});
  });
  std::erase_if(out, [](const AddedToken& token) { return token.content.empty(); });
  return out;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<Pattern>& patterns) {
  for (const Pattern& pattern : patterns) {
    std::uint32_t at = 0;
    for (const char c : pattern.text) {
      const auto byte = static_cast<unsigned char>(c);
      std::uint32_t next = child_of(at, byte);
      if (next == 0) {
        next = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back({.child = 0, .sibling = nodes_[at].child, .byte = byte});
        nodes_[at].child = next;
        if (at == 0) first_[byte] = next;
      }
      at = next;
    }
    // If two have the same text, the first counts. A text that the normalizer made empty is never found.
    if (at != 0 && nodes_[at].token == nullptr) nodes_[at].token = pattern.token;
  }
}

std::uint32_t AddedTokenFinder::child_of(std::uint32_t node, unsigned char byte) const {
  if (node == 0) return first_[byte];
  std::uint32_t child = nodes_[node].child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

AddedTokenFinder::Found AddedTokenFinder::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::uint32_t at = first_[static_cast<unsigned char>(text[begin])];
    if (at == 0) continue;
    Found found{begin, begin, nullptr};
    for (std::size_t i = begin + 1;; ++i) {
      if (nodes_[at].token != nullptr) found = {begin, i, nodes_[at].token};
      if (i == text.size()) break;
      at = child_of(at, static_cast<unsigned char>(text[i]));
      if (at == 0) break;
    }
    if (found.token != nullptr) return found;
  }
  return {text.size(), text.size(), nullptr};
}

bool AddedTokenFinder::widen(std::string_view text, std::size_t done, Found& found) {
  const AddedToken& token = *found.token;
  if (token.single_word) {
    const bool before = found.begin > 0 && is_word(last_character(text.substr(0, found.begin)).code);
    const bool after = found.end < text.size() && is_word(character_at(text, found.end).code);
    if (before || after) return false;
  }
  while (token.left_strip && found.begin > done) {
    const auto [code, bytes] = last_character(text.substr(0, found.begin));
    if (!is_whitespace(code)) break;
    found.begin -= bytes;
  }
  if (token.left_strip) found.begin = std::max(found.begin, done);
  while (token.right_strip && found.end < text.size()) {
    const auto [code, bytes] = character_at(text, found.end);
    if (!is_whitespace(code)) break;
    found.end += bytes;
  }
  return true;
}

}  // namespace strata::text
