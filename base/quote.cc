#include "base/quote.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata {
namespace {

bool is_plain(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._/=:,+-@%").find(static_cast<char>(c)) != std::string_view::npos;
}

bool is_control(unsigned char c) {
  return c < ' ' || c == 0x7f;
}

std::string in_quotes(std::string_view word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string shell_word(std::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  // $( ) strips trailing newlines.
  if (word.ends_with('\n') || std::none_of(word.begin(), word.end(), is_control)) return in_quotes(word);
  std::string format;
  for (const char c : word) {
    if (is_control(static_cast<unsigned char>(c)))
      format += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    else
      format += c == '%' ? "%%" : c == '\\' ? "\\\\" : std::string(1, c);
  }
  return "\"$(printf -- " + in_quotes(format) + ")\"";
}

std::string python_command(std::string_view code, std::initializer_list<std::string_view> arguments) {
  std::string out = fmt::format("python3 -c \"from sys import argv; {}\"", code);
  for (const std::string_view argument : arguments) out += " " + shell_word(argument);
  return out;
}

}  // namespace strata
