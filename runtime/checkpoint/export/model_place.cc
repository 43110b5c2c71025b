#include "runtime/checkpoint/export/model_place.h"

#include "base/json/json_writer.h"
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

}  // namespace strata::runtime
