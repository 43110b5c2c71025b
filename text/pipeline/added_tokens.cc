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
    if (pattern.text.empty()) continue;  // the normalizer made it empty, so it is never found
    std::uint32_t& number = texts_.number_of(pattern.text);
    if (number != ByteTrie::kNone) continue;  // of equal texts, the first counts
    number = static_cast<std::uint32_t>(tokens_.size());
    tokens_.push_back(pattern.token);
  }
}

AddedTokenFinder::Occurrence AddedTokenFinder::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    Occurrence found{begin, begin, nullptr};
    texts_.prefixes(text.substr(begin), [&](std::size_t bytes, std::uint32_t number) {
      found = {begin, begin + bytes, tokens_[number]};
    });
    if (found.token != nullptr) return found;
  }
  return {text.size(), text.size(), nullptr};
}

bool AddedTokenFinder::widen(std::string_view text, std::size_t done, Occurrence& found) {
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
