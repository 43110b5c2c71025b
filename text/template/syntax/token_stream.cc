#include "text/template/syntax/token_stream.h"

#include <fmt/format.h>

namespace strata::text::jinja {
namespace {

std::string shown(const Token& token) {
  switch (token.kind) {
    case Token::Kind::data:
      return "text";
    case Token::Kind::variable_begin:
      return "{{";
    case Token::Kind::variable_end:
      return "}}";
    case Token::Kind::block_begin:
      return "{%";
    case Token::Kind::block_end:
      return "%}";
    case Token::Kind::end:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text.substr(0, 64));
  }
}

}  // namespace

void TokenStream::unexpected(std::string_view expected) const {
  wrong(fmt::format("expected {}, found {}", expected, shown(current())));
}

}  // namespace strata::text::jinja
