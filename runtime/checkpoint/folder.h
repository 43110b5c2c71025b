#pragma once
// runtime/checkpoint/ stores runs: the folder with its lock, order and retention, and the hold that protects a
// checkpoint while it is read (this header), manifests and shard files (manifest.h, shard.h; their bytes are in
// docs/formats.md), writing during training (writer.h), and reading on any number of ranks (reader.h). choice.h finds
// the newest undamaged checkpoint, and file_system.h is the interface for which tests substitute failing disks. export/
// reads and writes Hugging Face directories.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/descriptor.h"
#include "base/progress.h"
#include "comm/communicator.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/kept_best.h"
#include "runtime/checkpoint/manifest.h"

namespace strata::runtime {

// The path of a step's checkpoint in a run's folder.
std::filesystem::path step_folder(const std::filesystem::path& folder, std::int64_t step);

// True if an entry of this name in checkpoint.dir belongs to a run: its lock, a checkpoint, or a checkpoint that is
// only partly written or removed.
bool is_name_of_run(std::string_view name);

// A checkpoint found in a folder: the contents of its manifest, or why it cannot be used.
struct FoundCheckpoint {
  std::filesystem::path path;
  std::uint64_t serial = 0;
  std::string damage;     // empty if it passed the test
  std::int64_t step = 0;  // the step that its manifest names
  std::optional<BestCheckpoint> best = {};
};

// How much of a checkpoint is checked: its manifest, or also the existence, sizes and headers of its files.
enum class CheckpointTest : std::uint8_t { manifest, shards };

// Lists the checkpoints of a folder: first those that fail the test, then the others, newest first. Throws Error{usage}
// for a manifest of a newer version, and Error{failed} if a folder or file cannot be read, which is not damage.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& folder,
                                              CheckpointTest test = CheckpointTest::manifest);
// Reads and checks a checkpoint's manifest.json. Throws Error{corrupt}, or Error{failed} if it cannot be read.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// The folder in which a run writes its checkpoints, locked against other runs during this object's lifetime.
class CheckpointFolder {
 public:
  // Collective: rank 0 creates and locks the folder and removes the partly written or partly deleted checkpoints of
  // earlier runs. Throws AgreedError{usage} if another run holds the lock.
  CheckpointFolder(const std::filesystem::path& path, std::int64_t keep, FileSystem& system, comm::World& world,
                   Note note = {});
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  FileSystem& system() const { return system_; }
  // The path at which a step's checkpoint is written before publish(): the same on all ranks, and unique to this run.
  std::filesystem::path temporary(std::int64_t step) const;

  // Rank 0: if the folder or its lock was removed, creates it again and locks it. Throws Error{usage} if another run
  // has locked it by now.
  void keep_locked();
  // Marks checkpoints whose data was found damaged: they are never removed and do not count towards `keep`.
  void pass_over(std::span<const std::filesystem::path> damaged);

  // Rank 0: writes the manifest into `temporary`, whose files must be durable, renames the folder to its final name
  // under the next serial, and removes the oldest checkpoints beyond `keep` that no process is reading. With
  // checkpoint.keep_best the best one is kept; an earlier run's best one is kept until a better one by the same measure
  // exists. A checkpoint that is kept for this reason, or because it could not be removed, is reported once. Neither is
  // an error, because the new checkpoint is durable.
  void publish(const std::filesystem::path& temporary, Manifest& manifest);
  // Sets a callback that publish() calls on its own thread for every durable checkpoint.
  using Published = std::function<void(std::int64_t step, const std::filesystem::path& place)>;
  void on_published(Published published) { published_ = std::move(published); }

 private:
  void lock();
  bool holds_lock() const;
  void clean();
  void remove_tree(const std::filesystem::path& path) const;
  // Keeps the newest checkpoint of step `best`, if it is given.
  void remove_old(std::optional<std::int64_t> best);
  // Calls f(); on a system error, notes that `path` could not be removed.
  template <typename F>
  void try_to_remove(const std::filesystem::path& path, F&& f);
  void say_once(const std::filesystem::path& path, const std::string& text);

  std::filesystem::path path_;
  std::int64_t keep_;
  FileSystem& system_;
  Note note_;
  Published published_;
  std::vector<std::filesystem::path> damaged_;  // canonical
  std::set<std::filesystem::path> said_;        // paths that a note has named
  Descriptor lock_;                             // the open lock file
  bool made_ = false;                           // the folder did not exist before
  std::uint64_t serial_ = 0;                    // the newest checkpoint's
  std::string run_;                             // makes this run's temporary names unique
};

// Keeps a checkpoint from being removed while it is read, and from being read while it is removed: a lock (flock) on
// its manifest, shared among readers. It ends with the object or the process. On file systems without flock it protects
// nothing.
class CheckpointHold {
 public:
  // Waits while the checkpoint is being removed. nullopt if it is gone.
  static std::optional<CheckpointHold> to_read(const std::filesystem::path& checkpoint);
  // Does not wait. nullopt if the checkpoint is being read.
  static std::optional<CheckpointHold> to_remove(const std::filesystem::path& checkpoint);

 private:
  explicit CheckpointHold(int fd) : manifest_(fd) {}

  Descriptor manifest_;  // invalid if it could not be opened; reading then reports why
};

}  // namespace strata::runtime
