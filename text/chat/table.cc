#include "text/chat/table.h"

#include <algorithm>

namespace strata::text {

std::size_t record_end(std::string_view text, std::size_t at) {
  bool quoted = false;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;  // a doubled quote changes it twice
    if (text[i] == '\n' && !quoted) return i + 1;
  }
  return std::string_view::npos;
}

std::vector<std::string> fields_of(std::string_view record, char separator) {
  if (record.ends_with('\n')) record.remove_suffix(1);
  if (record.ends_with('\r')) record.remove_suffix(1);
  std::vector<std::string> out(1);
  for (std::size_t at = 0; at < record.size();) {
    if (record[at] == separator) {
      out.emplace_back();
      ++at;
    } else if (record[at] == '"' && out.back().empty()) {
      std::size_t end = record.find('"', ++at);
      for (; end != std::string_view::npos && end + 1 < record.size() && record[end + 1] == '"';
           end = record.find('"', at)) {
        out.back() += record.substr(at, end + 1 - at);
        at = end + 2;
      }
      end = std::min(end, record.size());
      out.back() += record.substr(at, end - at);
      at = std::min(end + 1, record.size());
    } else {
      out.back() += record[at++];
    }
  }
  return out;
}

}  // namespace strata::text
