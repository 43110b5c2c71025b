#include "launcher/screen/folded.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "launcher/screen/printable.h"

namespace strata::launcher {

std::string folded(std::string_view text, std::size_t indent, std::size_t columns) {
  std::string out;
  std::size_t used = 0;  // columns of the line
  for (bool begun = false; !text.empty();) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    if (begun && used + 1 + word.size() > columns) {
      out += '\n' + std::string(indent, ' ');
      used = indent;
    } else if (begun) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
    begun = true;
    if (end < text.size() && text[end] == '\n') {
      out += '\n';
      used = 0;
      begun = false;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

void note_folded(std::string_view text) {
  constexpr std::size_t kBefore = 8;  // "strata: "
  const std::string lines = folded(text, 2, kColumns - kBefore);
  for (std::string_view rest = lines; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    note(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t columns) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const std::size_t wide = std::accumulate(widths.begin(), widths.end(), std::size_t{0}) + 2 * (widths.size() - 1);
  const std::string space(wide > columns ? 1 : 2, ' ');
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      out += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{}{:>{}}", space, row[i], widths[i]);
    out += '\n';
  }
  return out;
}

}  // namespace strata::launcher
