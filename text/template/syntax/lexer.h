#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace strata::text::jinja {

struct Token {
  enum class Kind { data, variable_begin, variable_end, block_begin, block_end, name, text, integer, real, sign, end };
  Kind kind;
  std::string text;  // the text, for a string literal without quotes and escapes
  int line;
};

// Why and where a template cannot be parsed.
struct SyntaxFault {
  std::string message;
  int line;
};

// The tokens of a template, with trim_blocks and lstrip_blocks; the last token is an end. `source` is UTF-8. Throws
// SyntaxFault.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace strata::text::jinja
