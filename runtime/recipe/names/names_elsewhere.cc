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
          std::string_view name = all.substr(at, end - at);
          const bool section = name.ends_with(".*");
          if (section) name.remove_suffix(2);
          out.push_back({name, key, note, section});
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
  const std::string text = folded(key.substr(0, 256));
  key = text;
  if (key.ends_with(".enabled")) key.remove_suffix(std::string_view(".enabled").size());
  const auto known = [&](std::string_view name) -> const NameElsewhere* {
    const auto names = names_elsewhere();
    const auto found = std::ranges::find_if(names, [&](const auto& row) { return folded(row.name) == name; });
    return found == names.end() ? nullptr : &*found;
  };
  // "training.args.lr" is known by its last part, "zero_optimization.offload_optimizer.device" by its last two.
  for (std::size_t begin = 0, dot = 0; dot != key.npos; begin = dot + 1) {
    if (const NameElsewhere* found = known(key.substr(begin))) return found;
    dot = key.find('.', begin);
  }
  // An answer for a section would be wrong for most keys inside it.
  for (std::size_t end = key.rfind('.'); end != key.npos && end > 0;) {
    const std::size_t dot = key.substr(0, end).rfind('.');
    const NameElsewhere* found = known(key.substr(dot + 1, end - dot - 1));
    if (found && found->section) return found;
    end = dot;
  }
  return nullptr;
}

bool is_by_section(const NameElsewhere& found, std::string_view key) {
  return !folded(key).ends_with(folded(found.name));
}

std::string text_of(const NameElsewhere& name) {
  if (name.key.empty()) return std::string(name.note);
  const bool more = name.note.starts_with("and ") || name.note.starts_with("with ") || name.note.starts_with("which ");
  return fmt::format("use {}{}{}", name.key, name.note.empty() ? "" : more ? ", " : ": ", name.note);
}

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last = before, row = before;  // rows i - 2, i - 1 and i
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (a[i] == b[j] ? 0 : 1), row[j] + 1, last[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

std::size_t edits_of_glob(std::string_view glob, std::string_view text) {
  std::vector<std::size_t> last(text.size() + 1), row = last;
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < glob.size(); ++i) {
    std::swap(last, row);
    const bool any_text = glob[i] == '*';
    bool any_letter = glob[i] == '?';
    if (const std::size_t end = glob[i] == '[' ? glob.find(']', i + 1) : glob.npos; end != glob.npos) {
      any_letter = true;
      i = end;
    }
    row[0] = last[0] + (any_text ? 0 : 1);
    for (std::size_t j = 0; j < text.size(); ++j)
      row[j + 1] = any_text
                       ? std::min(row[j], last[j + 1])
                       : std::min({last[j] + (any_letter || glob[i] == text[j] ? 0 : 1), row[j] + 1, last[j + 1] + 1});
  }
  return row.back();
}

bool is_typo(std::size_t edits, std::size_t letters, std::size_t per_edit) {
  return edits <= std::max<std::size_t>(1, letters / per_edit);
}

}  // namespace strata::runtime
