#include "runtime/checkpoint/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/files/output_file.h"
#include "base/random_name.h"
#include "comm/agreement.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/shard.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kWriting = ".writing-", kDeleting = ".deleting", kLock = "lock";
constexpr std::size_t kRunDigits = 16;  // the length of run_: too many digits to guess

bool is_temporary(const std::string& name) {
  return name.starts_with(kPrefix) && (name.find(kWriting) != std::string::npos || name.ends_with(kDeleting));
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    out.push_back(at->path());
  if (error) unreadable(folder, "listed", error.value());
  std::sort(out.begin(), out.end());
  return out;
}

// Fail now: otherwise the first checkpoint would fail, perhaps hours later.
void require_writable(const fs::path& path) {
  const fs::path trial = name_next_to(path / "trial");
  if (!create_new_folder(trial))
    fail(Exit::failed,
         "no checkpoint can be written to checkpoint.dir {} ({}): give this user write permission, or name another "
         "folder",
         path.string(), std::strerror(errno));
  (void)::rmdir(trial.c_str());
}

}  // namespace

fs::path step_folder(const fs::path& folder, std::int64_t step) {
  return folder / fmt::format("{}{:08}", kPrefix, step);
}

bool is_name_of_run(std::string_view name) {
  return name == kLock || name.starts_with(kPrefix);
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifestName;
  if (type_at(path) == fs::file_type::not_found)
    fail(Exit::corrupt, "{} is missing: no checkpoint was completed there", path.string());
  const ReadableFile file(path);
  if (file.bytes() > kMaxManifestBytes)
    fail(Exit::corrupt, "{} has {} bytes: no manifest is that long", path.string(), file.bytes());
  std::string text(file.bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return parse_manifest(text, path);
}

std::vector<FoundCheckpoint> list_checkpoints(const fs::path& folder, CheckpointTest test) {
  std::vector<FoundCheckpoint> out;
  for (const fs::path& path : entries(folder)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kPrefix) || is_temporary(name) || type_at(path) == fs::file_type::regular) continue;
    FoundCheckpoint& found = out.emplace_back();
    found.path = path;
    try {
      const Manifest manifest = read_manifest(path);
      if (test == CheckpointTest::shards)
        for (const ShardEntry& file : manifest.files) (void)read_shard_header(path / file.name, file);
      found.serial = manifest.serial;
      found.step = manifest.progress.step;
      found.best = best_checkpoint(manifest);
    } catch (const Error& error) {
      if (error.code() != Exit::corrupt) throw;
      found.damage = error.what();
      // A run that writes here has removed it in the meantime.
      if (type_at(path) == fs::file_type::not_found) out.pop_back();
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return std::pair(!a.damage.empty(), a.serial) > std::pair(!b.damage.empty(), b.serial);
  });
  return out;
}

CheckpointFolder::CheckpointFolder(const fs::path& path, std::int64_t keep, FileSystem& system, comm::World& world,
                                   Note note)
    : path_(path), keep_(keep), system_(system), note_(std::move(note)) {
  comm::agree(world, [&] {
    if (world.rank() != 0) return;
    made_ = type_at(path_) == fs::file_type::not_found;
    make_durable_folder(system_, path_);
    lock();
    require_writable(path_);
    clean();
    for (const FoundCheckpoint& found : list_checkpoints(path_)) serial_ = std::max(serial_, found.serial);
  });
  run_ = world.exchange(random_name().substr(0, kRunDigits))[0];
}

// A run that ends before its first checkpoint, for example during its start, leaves no file.
CheckpointFolder::~CheckpointFolder() {
  if (serial_ != 0 || !holds_lock()) return;
  std::error_code ignored;
  fs::directory_iterator at(path_, ignored), end;
  if (!ignored && std::distance(at, end) == 1) fs::remove(path_ / kLock, ignored);
  if (made_) (void)::rmdir(path_.c_str());
}

// flock belongs to the open file: the lock ends with the process, however that ends.
void CheckpointFolder::lock() {
  const fs::path path = path_ / kLock;
  int error = 0;
  for (;;) {
    lock_ = open_own_file(path, O_RDWR);
    if (lock_.get() < 0) refused_write(fmt::format("{} cannot be opened", path.string()), errno);
    error = lock_file(lock_);
    if (error != 0) break;
    // Another run may have removed the file between opening and locking it.
    if (holds_lock()) return;
  }
  lock_.reset();
  if (error == EWOULDBLOCK)
    fail(Exit::usage,
         "checkpoint.dir {} is in use: another run writes its checkpoints there; choose another for this run",
         path_.string());
  fail(Exit::failed, "{} cannot be locked: {}", path.string(), std::strerror(error));
}

bool CheckpointFolder::holds_lock() const {
  return lies_at(lock_, path_ / kLock);
}

void CheckpointFolder::keep_locked() {
  if (holds_lock()) return;
  lock_.reset();
  make_durable_folder(system_, path_);
  lock();
  for (const FoundCheckpoint& found : list_checkpoints(path_)) serial_ = std::max(serial_, found.serial);
  if (note_)
    note_(fmt::format("checkpoint.dir {} or its lock was removed while this run used it: the run has locked it again",
                      path_.string()));
}

void CheckpointFolder::pass_over(std::span<const fs::path> damaged) {
  std::error_code ignored;
  for (const fs::path& path : damaged) damaged_.push_back(fs::weakly_canonical(path, ignored));
}

void CheckpointFolder::clean() {
  for (const fs::path& path : entries(path_))
    if (is_temporary(path.filename().string())) try_to_remove(path, [&] { remove_tree(path); });
}

void CheckpointFolder::say_once(const fs::path& path, const std::string& text) {
  if (note_ && said_.insert(path).second) note_(text);
}

template <typename F>
void CheckpointFolder::try_to_remove(const fs::path& path, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    say_once(path, fmt::format("{} could not be removed ({}): remove it by hand before the disk fills up",
                               path.string(), error.what()));
  }
}

void CheckpointFolder::remove_tree(const fs::path& path) const {
  std::error_code ignored;
  if (fs::symlink_status(path, ignored).type() != fs::file_type::directory) return system_.remove_file(path);
  for (const fs::path& inner : entries(path)) remove_tree(inner);
  system_.remove_folder(path);
}

fs::path CheckpointFolder::temporary(std::int64_t step) const {
  return path_ / fmt::format("{}{:08}{}{}", kPrefix, step, kWriting, run_);
}

void CheckpointFolder::publish(const fs::path& temporary, Manifest& manifest) {
  if (type_at(temporary) == fs::file_type::not_found)
    fail(Exit::failed, "checkpoint.dir {} was removed while a checkpoint was being written to it: start the run again",
         path_.string());
  keep_locked();
  manifest.serial = ++serial_;
  for (const ShardEntry& file : manifest.files) {
    std::error_code error;
    if (fs::file_size(temporary / file.name, error) != file.bytes || error)
      fail(Exit::failed,
           "{} is missing or not as its rank wrote it: checkpoint.dir must lie on a file system that all "
           "nodes share",
           (temporary / file.name).string());
  }
  {
    const std::string text = to_json(manifest);
    const auto file = system_.create(temporary / kManifestName);
    file->write(0, std::as_bytes(std::span(text)));
    file->sync();
  }
  system_.sync_folder(temporary);
  // A run that started over or resumed from an older checkpoint may find its step's name taken.
  fs::path place = step_folder(path_, manifest.progress.step);
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(place, ignored))) place += fmt::format(".{}", manifest.serial);
  system_.rename(temporary, place);
  system_.sync_folder(path_);
  if (published_) published_(manifest.progress.step, place);
  const auto keeps_best = manifest.recipe.find("checkpoint.keep_best");
  std::optional<std::int64_t> best;
  if (manifest.progress.best && keeps_best != manifest.recipe.end() && keeps_best->second == "true")
    best = manifest.progress.best->step;
  try {
    remove_old(best);
  } catch (const Error& error) {  // the new checkpoint is durable: failing to read older ones must not end the run
    say_once(path_, fmt::format("older checkpoints in {} cannot be read ({}) and were not removed: remove them by hand "
                                "before the disk fills up",
                                path_.string(), error.what()));
  }
}

void CheckpointFolder::remove_old(std::optional<std::int64_t> best) {
  // Retry removals that failed earlier.
  for (const fs::path& path : entries(path_))
    if (path.filename().string().ends_with(kDeleting)) try_to_remove(path, [&] { remove_tree(path); });
  std::vector<FoundCheckpoint> whole = list_checkpoints(path_);
  std::erase_if(whole, [&](const FoundCheckpoint& found) {
    std::error_code ignored;
    const fs::path place = fs::weakly_canonical(found.path, ignored);
    return !found.damage.empty() || std::find(damaged_.begin(), damaged_.end(), place) != damaged_.end();
  });
  std::vector<RankedCheckpoint> ranked;
  for (const FoundCheckpoint& found : whole) ranked.push_back({found.step, found.serial, found.best});
  const std::vector<std::size_t> best_ones = best_by_measure(ranked);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const FoundCheckpoint& found = whole[i];
    const bool is_best = best == found.step;
    if (is_best) best.reset();
    if (static_cast<std::int64_t>(i) < keep_ || is_best) continue;
    if (std::find(best_ones.begin(), best_ones.end(), i) != best_ones.end()) {
      say_once(
          found.path,
          fmt::format("{} is kept: it was the best of an earlier run, and no checkpoint is better by the same measure "
                      "(checkpoint.keep_best, data.validation, evaluation.*); remove it if you do not need it",
                      found.path.string()));
      continue;
    }
    // A checkpoint that is being read stays until a later one is published.
    const auto hold = CheckpointHold::to_remove(found.path);
    if (!hold) continue;
    // Files are removed one by one: rename the folder first, so that no reader treats the rest as a checkpoint.
    fs::path going = found.path;
    going += kDeleting;
    try_to_remove(found.path, [&] {
      system_.rename(found.path, going);
      remove_tree(going);
    });
  }
}

std::optional<CheckpointHold> CheckpointHold::to_read(const fs::path& checkpoint) {
  const fs::path manifest = checkpoint / kManifestName;
  CheckpointHold hold(::open(manifest.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (hold.manifest_.get() < 0) return hold;
  while (::flock(hold.manifest_.get(), LOCK_SH) != 0 && errno == EINTR) {
  }
  struct stat held {
  }, there{};
  const bool same = ::fstat(hold.manifest_.get(), &held) == 0 && ::stat(manifest.c_str(), &there) == 0 &&
                    held.st_ino == there.st_ino && held.st_dev == there.st_dev;
  if (!same) return std::nullopt;
  return hold;
}

// NFS grants an exclusive lock only on a file that is open for writing.
std::optional<CheckpointHold> CheckpointHold::to_remove(const fs::path& checkpoint) {
  CheckpointHold hold(::open((checkpoint / kManifestName).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (hold.manifest_.get() >= 0 && ::flock(hold.manifest_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return std::nullopt;
  return hold;
}

}  // namespace strata::runtime
