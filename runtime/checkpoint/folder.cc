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
#include "comm/agreement.h"
#include "runtime/checkpoint/hold.h"
#include "runtime/checkpoint/readable_file.h"
#include "runtime/checkpoint/shard.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kWriting = ".writing-", kDeleting = ".deleting", kLock = "lock";

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

// What the first checkpoint would find out, maybe hours later.
void require_room_for_folders(const fs::path& path) {
  const fs::path trial = path / fmt::format("trial-{}", ::getpid());
  if (::mkdir(trial.c_str(), 0777) != 0)
    fail(Exit::failed, "checkpoint.dir {} takes no checkpoint ({}): let this user write there, or name another folder",
         path.string(), std::strerror(errno));
  (void)::rmdir(trial.c_str());
}

}  // namespace

fs::path step_folder(const fs::path& folder, std::int64_t step) {
  return folder / fmt::format("{}{:08}", kPrefix, step);
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifestName;
  if (type_at(path) == fs::file_type::not_found)
    fail(Exit::corrupt, "{} is missing: no checkpoint was completed there", path.string());
  const ReadableFile file(path);
  if (file.bytes() > kMostManifestBytes)
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
    } catch (const Error& error) {
      if (error.code() != Exit::corrupt) throw;
      found.damage = error.what();
      // A run that writes here has removed it meanwhile.
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
    system_.make_folder(path_);
    lock();
    require_room_for_folders(path_);
    clean();
    for (const FoundCheckpoint& found : list_checkpoints(path_)) serial_ = std::max(serial_, found.serial);
  });
  run_ = world.exchange(std::to_string(::getpid()))[0];
}

// A run that ends before its first checkpoint, at its start for example, leaves nothing.
CheckpointFolder::~CheckpointFolder() {
  if (serial_ != 0 || !holds_lock()) return;
  std::error_code ignored;
  fs::directory_iterator at(path_, ignored), end;
  if (!ignored && std::distance(at, end) == 1) fs::remove(path_ / kLock, ignored);
  if (made_) (void)::rmdir(path_.c_str());
}

// The lock is the open file's: it ends with the process, however that ends.
void CheckpointFolder::lock() {
  const fs::path path = path_ / kLock;
  for (;;) {
    lock_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (lock_.get() < 0) fail(Exit::failed, "{} cannot be opened: {}", path.string(), std::strerror(errno));
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) break;
    // Another run may have taken the file away between the two.
    if (holds_lock()) return;
  }
  const int error = errno;
  lock_.reset();
  if (error == EWOULDBLOCK)
    fail(Exit::usage, "checkpoint.dir {} is in use: another run writes its checkpoints there; give this one another",
         path_.string());
  fail(Exit::failed, "{} cannot be locked: {}", path.string(), std::strerror(error));
}

bool CheckpointFolder::holds_lock() const {
  struct stat held {
  }, there{};
  return ::fstat(lock_.get(), &held) == 0 && ::stat((path_ / kLock).c_str(), &there) == 0 &&
         held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

void CheckpointFolder::keep_locked() {
  if (holds_lock()) return;
  lock_.reset();
  system_.make_folder(path_);
  lock();
  for (const FoundCheckpoint& found : list_checkpoints(path_)) serial_ = std::max(serial_, found.serial);
  if (note_)
    note_(fmt::format("checkpoint.dir {} was removed, or its lock was, while this run used it: it is locked again",
                      path_.string()));
}

void CheckpointFolder::pass_over(std::span<const fs::path> damaged) {
  std::error_code ignored;
  for (const fs::path& path : damaged) damaged_.push_back(fs::weakly_canonical(path, ignored));
}

void CheckpointFolder::clean() const {
  for (const fs::path& path : entries(path_))
    if (is_temporary(path.filename().string())) remove_tree(path);
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
    fail(Exit::failed, "checkpoint.dir {} was removed while a checkpoint was written to it: start the run again",
         path_.string());
  keep_locked();
  manifest.serial = ++serial_;
  for (const ShardEntry& file : manifest.files) {
    std::error_code error;
    if (fs::file_size(temporary / file.name, error) != file.bytes || error)
      fail(Exit::failed,
           "{} is not there as its rank wrote it: checkpoint.dir must lie on a file system that all "
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
  // A run that started over, or from an older one, meets names that are taken.
  fs::path place = step_folder(path_, manifest.progress.step);
  std::error_code ignored;
  if (fs::exists(place, ignored)) place += fmt::format(".{}", manifest.serial);
  system_.rename(temporary, place);
  system_.sync_folder(path_);
  if (published_) published_(manifest.progress.step, place);
  const auto keeps_best = manifest.recipe.find("checkpoint.keep_best");
  std::optional<std::int64_t> best;
  if (manifest.progress.best && keeps_best != manifest.recipe.end() && keeps_best->second == "true")
    best = manifest.progress.best->step;
  remove_old(best);
}

void CheckpointFolder::remove_old(std::optional<std::int64_t> best) const {
  std::int64_t kept = 0;
  for (const FoundCheckpoint& found : list_checkpoints(path_)) {
    std::error_code ignored;
    const fs::path place = fs::weakly_canonical(found.path, ignored);
    const bool damaged = !found.damage.empty() || std::find(damaged_.begin(), damaged_.end(), place) != damaged_.end();
    const bool is_best = !damaged && best == found.step;
    if (is_best) best.reset();
    if (damaged || ++kept <= keep_ || is_best) continue;
    // One that somebody reads stays until a later checkpoint.
    const auto hold = CheckpointHold::to_remove(found.path);
    if (!hold) continue;
    // Under a name that no reader takes for a checkpoint, as it goes file by file.
    fs::path going = found.path;
    going += kDeleting;
    system_.rename(found.path, going);
    remove_tree(going);
  }
}

}  // namespace strata::runtime
