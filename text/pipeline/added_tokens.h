#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/json/json.h"
#include "text/subwords/byte_trie.h"
#include "text/tokenizer.h"

namespace strata::text {

// Reads "added_tokens" from a tokenizer.json.
std::vector<AddedToken> read_added_tokens(const Json& json);

// Finds added tokens in a text from left to right; the longest one at a place counts. Immutable.
class AddedTokenFinder {
 public:
  struct Pattern {
    std::string text;
    const AddedToken* token;
  };
  explicit AddedTokenFinder(const std::vector<Pattern>& patterns);

  bool empty() const { return texts_.empty(); }
  // Splits `text` and calls part(text, token) in order: for each token, and with nullptr for each text between tokens.
  template <typename Part>
  void split(std::string_view text, Part&& part) const {
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      Occurrence found = find(text, at);
      if (found.token == nullptr) break;
      at = found.end;
      // The library also searches the spaces that the previous token has taken, and drops matches that become empty.
      if (!widen(text, done, found) || found.begin >= found.end) continue;
      if (done < found.begin) part(text.substr(done, found.begin - done), nullptr);
      part(text.substr(found.begin, found.end - found.begin), found.token);
      done = found.end;
    }
    if (done < text.size()) part(text.substr(done), nullptr);
  }

 private:
  struct Occurrence {
    std::size_t begin, end;
    const AddedToken* token;
  };
  Occurrence find(std::string_view text, std::size_t from) const;
  // Extends the match by adjacent spaces, as the token's flags say. False if it must be a whole word and is not.
  static bool widen(std::string_view text, std::size_t done, Occurrence& found);

  ByteTrie texts_;  // the texts of the tokens, with indices in tokens_
  std::vector<const AddedToken*> tokens_;
};

}  // namespace strata::text
