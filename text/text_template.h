#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::text {

// How a tokenizer writes a text, or a pair of texts: the special tokens with their places, and the token type of each
// piece.
struct TextTemplate {
  enum class Kind : std::uint8_t { token, first, second };
  struct Piece {
    Kind kind;
    std::uint32_t id = 0;  // for a token
    std::uint32_t type = 0;
  };
  std::vector<Piece> single = {{Kind::first}};
  std::vector<Piece> pair = {};  // empty: the tokenizer has no template for pairs
  bool cuts_front = false;       // a text that is too long loses its beginning (`truncation_side`)

  // The number of tokens that it adds.
  static std::size_t added(const std::vector<Piece>& pieces) {
    std::size_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.kind == Kind::token ? 1 : 0;
    return sum;
  }
};

}  // namespace strata::text
