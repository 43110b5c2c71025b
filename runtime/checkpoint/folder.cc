#include "runtime/checkpoint/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "comm/agreement.h"
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
  if (error) fail(Exit::failed, "{} cannot be listed: {}", folder.string(), error.message());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifestName;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status))
    fail(Exit::corrupt, "{} is not a regular file", path.string());
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(Exit::corrupt, "{} is missing: no checkpoint was completed there", path.string());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) fail(Exit::failed, "{} cannot be read: {}", path.string(), std::strerror(errno));
  return parse_manifest(text, path);
}

std::vector<FoundCheckpoint> list_checkpoints(const fs::path& folder, CheckpointTest test) {
  std::vector<FoundCheckpoint> out;
  for (const fs::path& path : entries(folder)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kPrefix) || is_temporary(name)) continue;
    FoundCheckpoint& found = out.emplace_back();
    found.path = path;
    try {
      const Manifest manifest = read_manifest(path);
      if (test == CheckpointTest::shards)
        for (const ShardEntry& file : manifest.files) (void)read_shard_header(path / file.name, file);
      found.serial = manifest.serial;
    } catch (const Error& error) {
      if (error.code() == Exit::usage) throw;
      found.damage = error.what();
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return std::pair(!a.damage.empty(), a.serial) > std::pair(!b.damage.empty(), b.serial);
  });
  return out;
}

CheckpointFolder::CheckpointFolder(const fs::path& path, std::int64_t keep, FileSystem& system, comm::World& world)
    : path_(path), keep_(keep), system_(system) {
  comm::agree(world, [&] {
    if (world.rank() != 0) return;
    std::error_code ignored;
    made_ = !fs::exists(path_, ignored);
    system_.make_folder(path_);
    lock();
    clean();
    for (const FoundCheckpoint& found : list_checkpoints(path_)) serial_ = std::max(serial_, found.serial);
  });
  run_ = world.exchange(std::to_string(::getpid()))[0];
}

// A run that ends before its first checkpoint, at its start for example, leaves nothing.
CheckpointFolder::~CheckpointFolder() {
  if (lock_ < 0) return;
  std::error_code ignored;
  if (serial_ == 0) {
    fs::directory_iterator at(path_, ignored), end;
    if (!ignored && std::distance(at, end) == 1) fs::remove(path_ / kLock, ignored);
    if (made_) (void)::rmdir(path_.c_str());
  }
  ::close(lock_);
}

// The lock is the open file's: it ends with the process, however that ends.
void CheckpointFolder::lock() {
  const fs::path path = path_ / kLock;
  for (;;) {
    lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_ < 0) fail(Exit::failed, "{} cannot be opened: {}", path.string(), std::strerror(errno));
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) break;
    // Another run may have taken the file away between the two.
    struct stat opened {
    }, there{};
    if (::fstat(lock_, &opened) == 0 && ::stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino) return;
    ::close(std::exchange(lock_, -1));
  }
  const int error = errno;
  ::close(std::exchange(lock_, -1));
  if (error == EWOULDBLOCK)
    fail(Exit::usage, "checkpoint.dir {} is in use: another run writes its checkpoints there; give this one another",
         path_.string());
  fail(Exit::failed, "{} cannot be locked: {}", path.string(), std::strerror(error));
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
  fs::path place = path_ / fmt::format("{}{:08}", kPrefix, manifest.progress.step);
  std::error_code ignored;
  if (fs::exists(place, ignored)) place += fmt::format(".{}", manifest.serial);
  system_.rename(temporary, place);
  system_.sync_folder(path_);
  remove_old();
}

void CheckpointFolder::remove_old() const {
  std::int64_t kept = 0;
  for (const FoundCheckpoint& found : list_checkpoints(path_)) {
    if (!found.damage.empty() || ++kept <= keep_) continue;
    // Under a name that no reader takes for a checkpoint, as it goes file by file.
    fs::path going = found.path;
    going += kDeleting;
    system_.rename(found.path, going);
    remove_tree(going);
  }
}

}  // namespace strata::runtime
