#include "text/classes/joined_labels.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace strata::text {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

std::vector<std::string> parts_of(std::string_view name, char separator) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find(separator, at), name.size());
    std::string_view part = name.substr(at, end - at);
    at = end + 1;
    part.remove_prefix(std::min(part.find_first_not_of(kSpaces), part.size()));
    part = part.substr(0, part.find_last_not_of(kSpaces) + 1);
    if (!part.empty()) out.emplace_back(part);
  }
  return out;
}

bool is_tag(std::string_view part) {
  return part == "O" || (part.size() > 2 && (part.starts_with("B-") || part.starts_with("I-")));
}
bool is_number(std::string_view part) {
  return part.find_first_not_of("0123456789") == part.npos;
}
bool are_tags(const std::vector<std::string>& parts) {
  return std::all_of(parts.begin(), parts.end(), is_tag) &&
         std::any_of(parts.begin(), parts.end(), [](const std::string& part) { return part != "O"; });
}

}  // namespace

std::optional<JoinedLabel> joined_label(const std::map<std::string, std::uint64_t>& classes) {
  constexpr std::string_view kSeparators = ",;| /+&";
  constexpr std::uint64_t kOfNames = 3;  // how many labels must use a separator that also occurs in names
  for (const char separator : kSeparators) {
    const bool of_lists = separator == ',' || separator == ';' || separator == '|';
    std::map<std::string, std::set<std::string_view>> within;  // for each part, the labels that contain it
    std::vector<std::pair<std::string_view, std::vector<std::string>>> several;
    std::optional<JoinedLabel> first;
    std::uint64_t of_classes = 0, tags = 0;
    for (const auto& [name, count] : classes) {
      std::vector<std::string> parts = parts_of(name, separator);
      for (const std::string& part : parts) within[part].insert(name);
      if (parts.size() < 2) continue;
      const bool all_tags = separator == ' ' && are_tags(parts);
      const bool all_numbers = of_lists && std::all_of(parts.begin(), parts.end(), is_number);
      const bool all_classes = all_numbers || std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
                                 return part != name && classes.contains(part);
                               });
      if (all_tags) ++tags;
      if (all_classes) ++of_classes;
      if (!first && (all_tags || all_classes)) first = JoinedLabel{name, parts, separator};
      several.emplace_back(name, std::move(parts));
    }
    if (tags > 0 || of_classes >= (of_lists ? 1 : kOfNames)) {
      first->tags = tags > 0;
      first->more = std::max(tags, of_classes) - 1;
      return first;
    }
    if (!of_lists || several.size() < kOfNames || within.size() * 2 > several.size()) continue;
    std::uint64_t shared = 0;
    for (auto& [name, parts] : several) {
      if (!std::all_of(parts.begin(), parts.end(), [&](const std::string& part) { return within[part].size() > 1; }))
        continue;
      if (shared++ == 0) first = JoinedLabel{std::string(name), std::move(parts), separator};
    }
    if (shared < kOfNames) continue;
    first->more = shared - 1;
    return first;
  }
  return std::nullopt;
}

}  // namespace strata::text
