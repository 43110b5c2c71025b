#include "runtime/recipe/names/names_elsewhere.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>
#include <vector>

namespace strata::runtime {

std::span<const NameElsewhere> names_elsewhere() {
  static const std::vector<NameElsewhere> names = [] {
    std::vector<NameElsewhere> out;
    for (const auto rows : {names_of_trainers(), names_of_frameworks()})
      for (const auto& [all, key, note] : rows)
        for (std::size_t at = 0, end; at < all.size(); at = end + 1) {
          end = std::min(all.find(' ', at), all.size());
          out.push_back({all.substr(at, end - at), key, note});
        }
    return out;
  }();
  return names;
}

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += c == '-' || c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

const NameElsewhere* find_elsewhere(std::string_view key) {
  // "offload_optimizer.device" is known by its section, "training.lr" by its last part.
  key = key.substr(0, 256);
  if (key.ends_with(".enabled")) key.remove_suffix(std::string_view(".enabled").size());
  const auto names = names_elsewhere();
  const auto known = [&](std::string_view part) {
    return std::ranges::find_if(names, [&](const auto& name) { return folded(name.name) == folded(part); });
  };
  if (const auto found = known(key); found != names.end()) return &*found;
  for (std::size_t end = key.size(); end != key.npos && end > 0;) {
    const std::size_t dot = key.substr(0, end).rfind('.');
    const std::string_view part = key.substr(dot + 1, end - dot - 1);
    // fp16 and adapter are sections here, too: a key in one is a mistyped key of ours rather than another program's
    // section.
    if ((part == "fp16" || part == "adapter") && end != key.size()) break;
    const auto found = known(part);
    if (found != names.end()) return &*found;
    end = dot;
  }
  return nullptr;
}

std::string text_of(const NameElsewhere& name) {
  if (name.key.empty()) return std::string(name.note);
  const bool more = name.note.starts_with("and ") || name.note.starts_with("with ");
  return fmt::format("use {}{}{}", name.key, name.note.empty() ? "" : more ? ", " : ": ", name.note);
}

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

bool is_slip(std::size_t edits, std::size_t letters, std::size_t per_edit) {
  return edits <= std::max<std::size_t>(1, letters / per_edit);
}

}  // namespace strata::runtime
