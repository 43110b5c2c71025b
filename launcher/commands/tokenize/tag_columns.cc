#include "launcher/commands/tokenize/tag_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/shell_word.h"

namespace strata::launcher {
namespace {

bool is_tag(std::string_view field) {
  constexpr std::string_view kPlaces = "BIELSUM";  // of BIO, BIOES, BILOU and their like
  return field == "O" || (field.size() > 2 && field[1] == '-' && kPlaces.find(field[0]) != kPlaces.npos);
}

}  // namespace

bool has_tag_columns(std::string_view text) {
  constexpr std::size_t kLeast = 3, kMost = 200;
  constexpr std::string_view kSpaces = " \t\r";
  std::size_t lines = 0;
  for (std::size_t at = 0; at < text.size() && lines < kMost;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (end == text.size() && lines >= kLeast) break;  // may be cut
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    line = line.substr(0, line.find_last_not_of(kSpaces) + 1);
    if (line.empty() || line.starts_with("-DOCSTART-")) continue;
    const std::size_t before = line.find_last_of(kSpaces);
    if (before == line.npos || line.find_first_not_of(kSpaces) > before || !is_tag(line.substr(before + 1)))
      return false;
    ++lines;
  }
  return lines >= kLeast;
}

std::string conversion_of_columns(const std::string& name) {
  return fmt::format(
      "jq -Rsc 'gsub(\"\\r\"; \"\") | split(\"\\n[ \\t]*\\n\"; null)[] | [split(\"\\n\")[] | "
      "select(test(\"[^ \\t]\") and (startswith(\"-DOCSTART-\") | not)) | [splits(\"[ \\t]+\")]] | select(length > 0) "
      "| "
      "{{tokens: map(.[0]), tags: map(.[-1])}}' {} > {} makes a line of each sentence, which --field tokens --labels "
      "tags reads",
      shell_word(name), shell_word(name + ".jsonl"));
}

}  // namespace strata::launcher
