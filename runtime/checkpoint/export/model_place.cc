#include "runtime/checkpoint/export/model_place.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json_writer.h"
#include "base/number.h"
#include "models/files/config.h"
#include "runtime/checkpoint/file_system.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// The folder in which the run was started: its relative checkpoint.dir leads from there to `checkpoints`. Empty if it
// is not known.
fs::path folder_of_start(const Manifest& manifest, const fs::path& checkpoints) {
  const fs::path stored = stored_path(manifest, "checkpoint.dir");
  if (stored.empty() || stored.is_absolute()) return {};
  fs::path dir = (stored / "").lexically_normal().parent_path();
  if (dir == ".") dir.clear();  // "." and "./" are the folder itself
  fs::path start = checkpoints;
  for (auto part = dir.end(); part != dir.begin(); start = start.parent_path())
    if (*--part != start.filename()) return {};
  return start;
}

// The N of a folder checkpoint-N, as transformers' Trainer names it.
std::optional<std::uint64_t> number_of_checkpoint(const std::string& name) {
  constexpr std::string_view kPrefix = "checkpoint-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return parse_number<std::uint64_t>(std::string_view(name).substr(kPrefix.size()));
}

}  // namespace

fs::path stored_path(const Manifest& manifest, const char* key) {
  const auto stored = manifest.recipe.find(key);
  // A key's text is TOML: a path is a string, as in JSON; an unset path is not.
  if (stored == manifest.recipe.end() || !stored->second.starts_with('"')) return {};
  return models::Config::parse(JsonObject().add("path", JsonText{stored->second}).text(), key).text_or("path", "");
}

ModelPlace place_of(const fs::path& model, const Manifest& manifest, const fs::path& checkpoint) {
  if (model.empty() || model.is_absolute()) return {model};
  const auto in = [&](const fs::path& folder) { return (folder / model).lexically_normal(); };
  const fs::path checkpoints = fs::absolute(checkpoint / "").lexically_normal().parent_path().parent_path();
  const fs::path start = folder_of_start(manifest, checkpoints), parent = checkpoints.parent_path();
  if (!start.empty() && type_at(in(start)) != fs::file_type::not_found) return {in(start)};
  for (const fs::path& folder : {parent, fs::current_path()})
    if (type_at(in(folder)) != fs::file_type::not_found) return {in(folder), true};
  return {in(start.empty() ? parent : start)};
}

std::optional<fs::path> subfolder_with(std::span<const std::string_view> files, const fs::path& folder) {
  std::error_code ignored;  // what cannot be read is not proposed
  std::vector<std::pair<std::uint64_t, fs::path>> checkpoints;
  std::vector<fs::path> others;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    std::error_code unreadable;
    if (std::ranges::none_of(files,
                             [&](std::string_view file) { return fs::exists(entry->path() / file, unreadable); }))
      continue;
    if (const auto number = number_of_checkpoint(entry->path().filename().string()))
      checkpoints.emplace_back(*number, entry->path());
    else
      others.push_back(entry->path());
  }
  if (!checkpoints.empty()) return std::ranges::max(checkpoints).second;
  return others.size() == 1 ? std::optional(others.front()) : std::nullopt;
}

}  // namespace strata::runtime
