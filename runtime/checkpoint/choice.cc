#include "runtime/checkpoint/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "runtime/checkpoint/file_system.h"

namespace strata::runtime {

namespace fs = std::filesystem;

namespace {

// nullopt if the checkpoint is damaged; found.damage then says how.
std::optional<Checkpoint> open_undamaged(FoundCheckpoint& found, int threads, const Advance& advance) {
  try {
    Checkpoint checkpoint(found.path);
    checkpoint.verify(threads, advance);
    return checkpoint;
  } catch (const Error& error) {
    if (error.code() != Exit::corrupt) throw;
    found.damage = error.what();
    return std::nullopt;
  }
}

// "; runs/a has step-00000060, step-00000040 (the best)", with at most kMost names. Empty if the folder cannot be read:
// the caller reports another error.
std::string others_text(const std::optional<fs::path>& folder) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> names;
  try {
    std::optional<std::int64_t> best;
    for (const FoundCheckpoint& found : folder ? list_checkpoints(*folder) : std::vector<FoundCheckpoint>()) {
      if (!found.damage.empty()) continue;
      if (names.empty())
        if (const auto& last = read_manifest(found.path).progress.best) best = last->step;
      names.push_back(found.path.filename().string() + (best == found.step ? " (the best)" : ""));
    }
  } catch (const Error&) {
  }
  if (names.empty()) return "";
  const bool more = names.size() > kMost;
  names.resize(std::min(names.size(), kMost));
  return fmt::format("; {} has {}{}", folder->string(), fmt::join(names, ", "),
                     more ? " and others (strata inspect lists them)" : "");
}

}  // namespace

namespace {

// True if the folder has a checkpoint's shards. Without a manifest, it is then a damaged checkpoint and not a wrong
// path.
bool has_shards(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".safetensors" && at->path().filename().string().starts_with("rank-")) return true;
  return false;
}

}  // namespace

bool is_checkpoint(const fs::path& path) {
  return type_at(path / kManifestName) != fs::file_type::not_found;
}

ResumeChoice checkpoints_to_resume(const Recipe::Checkpoint& recipe) {
  const bool choose = recipe.resume == "auto";
  if (recipe.resume == "none" || (choose && !recipe.dir)) return {};
  ResumeChoice out{false, choose ? *recipe.dir : fs::path(recipe.resume), {}};
  if (type_at(out.folder) == fs::file_type::not_found) {
    if (choose) return {};  // the run will create it
    fail(Exit::usage,
         "checkpoint.resume = {}: there is no such checkpoint or folder of checkpoints; \"auto\" takes the newest of "
         "checkpoint.dir{}",
         out.folder.string(), others_text(recipe.dir));
  }
  if (choose || (!is_checkpoint(out.folder) && type_at(out.folder) == fs::file_type::directory))
    out.found = list_checkpoints(out.folder);
  out.one = !choose && out.found.empty();
  if (out.one && !is_checkpoint(out.folder) && !has_shards(out.folder))
    fail(Exit::usage, "checkpoint.resume = {}: this {}; give a checkpoint or a folder of checkpoints{}",
         out.folder.string(),
         type_at(out.folder) == fs::file_type::directory ? "folder holds no checkpoint" : "is a file, not a folder",
         others_text(recipe.dir));
  if (out.one) out.found.push_back({out.folder, 0, "", 0, {}});
  return out;
}

std::string passed_over(const FoundCheckpoint& found) {
  // The damage text repeats the folder's path, which the sentence already has.
  const std::string folder = found.path.string() + "/";
  std::string damage = found.damage;
  for (std::size_t at = 0; (at = damage.find(folder, at)) != std::string::npos;) damage.erase(at, folder.size());
  if (damage.ends_with(kNameOlder)) damage.resize(damage.size() - kNameOlder.size());  // an older one is tried now
  return fmt::format("passed over {}: {}", found.path.string(), damage);
}

std::string all_damaged_text(std::size_t count) {
  return count == 1 ? "its only checkpoint is not complete"
                    : fmt::format("none of its {} checkpoints is complete", count);
}

void fail_all_damaged(const fs::path& folder, std::size_t count, std::string_view advice) {
  fail(Exit::corrupt, "{}: {} (see above): {}", folder.string(), all_damaged_text(count), advice);
}

std::optional<Checkpoint> newest_undamaged(const fs::path& folder, int threads, const Note& note,
                                           const Advance& advance) {
  std::set<fs::path> passed;
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<FoundCheckpoint> all = list_checkpoints(folder);
    if (all.empty()) return std::nullopt;
    for (FoundCheckpoint& found : all) {
      if (found.damage.empty())
        if (auto whole = open_undamaged(found, threads, advance)) return whole;
      // A run that writes here has since removed it, and has therefore written newer ones.
      changed = type_at(found.path) == fs::file_type::not_found;
      if (changed) break;
      if (passed.insert(found.path).second) note(passed_over(found));
    }
  }
  fail_all_damaged(folder, passed.size(), "name another folder, or a complete checkpoint");
}

}  // namespace strata::runtime
