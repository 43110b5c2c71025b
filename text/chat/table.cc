#include "text/chat/table.h"

#include <fmt/format.h>

namespace strata::text {

std::size_t record_end(std::string_view text, std::size_t at, char separator) {
  bool begins = true, quoted = false;  // at the start of a field; inside quotes
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"')
        ++i;
      else
        quoted = c != '"';
      continue;
    }
    if (c == '\n') return i + 1;
    quoted = begins && c == '"';
    begins = c == separator;
  }
  return std::string_view::npos;
}

std::vector<std::string> fields_of(std::string_view record, char separator) {
  if (record.ends_with('\n')) record.remove_suffix(1);
  if (record.ends_with('\r')) record.remove_suffix(1);
  std::vector<std::string> out(1);
  bool begins = true;
  for (std::size_t at = 0; at < record.size();) {
    if (record[at] == separator) {
      out.emplace_back();
      begins = true;
      ++at;
    } else if (record[at] == '"' && begins) {
      std::size_t end = record.find('"', ++at);
      for (; end != std::string_view::npos && end + 1 < record.size() && record[end + 1] == '"';
           end = record.find('"', at)) {
        out.back() += record.substr(at, end + 1 - at);
        at = end + 2;
      }
      if (end == std::string_view::npos)
        throw TableFault{fmt::format("field {} begins with a quote that is never closed", out.size())};
      out.back() += record.substr(at, end - at);
      at = end + 1;
      begins = false;
      if (at < record.size() && record[at] != separator)
        throw TableFault{fmt::format(
            "there is text after the quote that closes field {}: a quote inside a quoted field is written twice",
            out.size())};
    } else {
      if (record[at] == '\r')
        throw TableFault{
            "there is a carriage return without a line feed: lines end with a line feed, with or without one before it "
            "(tr '\\r' "
            "'\\n' converts such a file)"};
      out.back() += record[at++];
      begins = false;
    }
  }
  return out;
}

}  // namespace strata::text
