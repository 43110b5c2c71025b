#include "runtime/recipe/toml_file.h"

#include <fmt/format.h>

#include <cctype>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/shell_word.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

std::string read_text(const std::filesystem::path& path, std::string_view what) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    fail(Exit::usage, "{} {} is a folder, not a TOML file{}", what, path.string(),
         what == "recipe" ? fmt::format("; of a model's folder: --set model.path={}", shell_word(path.string())) : "");
  return read_input(path, fmt::format("{} {}", what, path.string()), kMaxBytes, Pipes::handed_over);
}

std::string_view line_of(std::string_view text, std::size_t number) {
  for (; number > 1 && text.find('\n') != text.npos; --number) text.remove_prefix(text.find('\n') + 1);
  return text.substr(0, text.find_first_of("\r\n"));
}

// A hint at the most common mistake in a line that is not TOML; empty if it is none of these.
std::string_view hint_for(std::string_view line) {
  const std::size_t equals = line.find('='), colon = line.find(':');
  if (colon != line.npos && equals == line.npos) return " (is this YAML? TOML has KEY = VALUE below its [SECTION])";
  if (equals == line.npos) return "";
  const std::size_t value = line.find_first_not_of(" \t", equals + 1);
  const bool bare = value != line.npos && (std::isalpha(static_cast<unsigned char>(line[value])) ||
                                           std::strchr("./~", line[value]) != nullptr);
  return bare ? " (strings need quotes: KEY = \"TEXT\")" : "";
}

}  // namespace

void refuse_deep_keys(std::string_view text, std::string_view what) {
  constexpr std::size_t kMostDots = 100;
  std::size_t dots = 0;
  char before = '\0';
  for (const char c : text) {
    const bool of_a_key = std::isalnum(static_cast<unsigned char>(c)) || (c != '\0' && std::strchr("_-\"' \t", c));
    if (c == '.' && before != '.')
      ++dots;
    else if (!of_a_key)  // two dots in a row cannot be part of a key
      dots = 0;
    before = c;
    if (dots > kMostDots) fail(Exit::usage, "{} has a key of more than {} parts", what, kMostDots);
  }
}

toml::table read_toml(const std::filesystem::path& path, std::string_view what) {
  const std::string text = read_text(path, what);
  refuse_deep_keys(text, fmt::format("{} {}", what, path.string()));
  try {
    return toml::parse(text, path.string());
  } catch (const toml::parse_error& error) {
    const bool json =
        text.find_first_not_of(" \t\r\n") != std::string::npos && text[text.find_first_not_of(" \t\r\n")] == '{';
    if (json) fail(Exit::usage, "{} {} looks like JSON: a {} is written in TOML", what, path.string(), what);
    const auto line = error.source().begin.line;
    fail(Exit::usage, "{} {}, line {}, column {}: {}{}", what, path.string(), line, error.source().begin.column,
         error.description(), hint_for(line_of(text, line)));
  } catch (const TomlAssertion&) {
    fail(Exit::usage, "{} {} is not TOML", what, path.string());
  }
}

}  // namespace strata::runtime
