#include "launcher/screen/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "base/words.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::launcher {

std::string printable(std::string_view text, bool lines) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' && !lines)
      out += "\\n";
    else
      out += c;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto byte = static_cast<unsigned char>(out[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) out[i] = '?';
    // U+0080 to U+009F, which some terminals obey too.
    if (byte == 0xc2 && i + 1 < out.size() && (static_cast<unsigned char>(out[i + 1]) & 0xe0) == 0x80) {
      out[i] = '?';
      out.erase(i + 1, 1);
    }
  }
  return out;
}

void print_to_stderr(std::string_view text) {
  // Not fmt::print, which throws if stderr cannot be written.
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

void note(std::string_view text) {
  print_to_stderr("strata: " + printable(text) + "\n");
}

std::string failure_end(Exit code, EndReason reason) {
  return fmt::format("{}{} {} {}", kFailureEnd, static_cast<int>(code), static_cast<int>(reason.kind), reason.step);
}

void print_failure(std::string_view text, Exit code, EndReason reason) {
  // Only the program's own texts have several lines. A name with a line break stays on one line.
  const bool lines = code == Exit::does_not_fit || text.find(runtime::kBeforeUnknownKeys) != text.npos;
  std::string line = "strata: " + printable(text, lines);
  if (std::getenv("STRATA_LAUNCH")) line += failure_end(code, reason);
  print_to_stderr(line + "\n");
}

void print_notes(std::span<const std::string> notes, std::string_view of) {
  for (const std::string& text : notes) note(of.empty() ? text : fmt::format("{}: {}", of, text));
}

PrintableStream::~PrintableStream() {
  to_ << printable(line_);
}

int PrintableStream::overflow(int c) {
  using Traits = std::streambuf::traits_type;
  if (Traits::eq_int_type(c, Traits::eof())) return Traits::not_eof(c);
  const char one = Traits::to_char_type(c);
  return xsputn(&one, 1) == 1 ? c : Traits::eof();
}

std::streamsize PrintableStream::xsputn(const char* text, std::streamsize size) {
  line_.append(text, static_cast<std::size_t>(size));
  if (const std::size_t last = line_.rfind('\n'); last != std::string::npos) {
    to_ << printable(std::string_view(line_).substr(0, last + 1), true);
    line_.erase(0, last + 1);
  }
  return to_ ? size : 0;
}

int PrintableStream::sync() {
  to_.flush();
  return to_ ? 0 : -1;
}

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
  for (const std::string_view line : split_list(lines, '\n')) note(line);
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
