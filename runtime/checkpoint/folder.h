#pragma once
// runtime/checkpoint/ keeps a run: the folder with its lock, order and retention (here), manifests and shard files
// (manifest.h, shard.h; docs/formats.md has the bytes), writing beside training (writer.h) and reading on any number of
// ranks (reader.h). choice.h finds the newest whole one, hold.h keeps it while it is read, file_system.h is where tests
// put disks that fail. model_folder.h and exporter.h are for Hugging Face directories.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/descriptor.h"
#include "base/note.h"
#include "comm/communicator.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/kept_best.h"
#include "runtime/checkpoint/manifest.h"

namespace strata::runtime {

// Where the checkpoint of a step lies in the folder of a run.
std::filesystem::path step_folder(const std::filesystem::path& folder, std::int64_t step);

// Whether an entry of this name in checkpoint.dir is a run's own: its lock, a checkpoint, or one half written or
// removed.
bool is_name_of_run(std::string_view name);

// A checkpoint found in a folder: what its manifest says, or why it cannot be used.
struct FoundCheckpoint {
  std::filesystem::path path;
  std::uint64_t serial = 0;
  std::string damage;     // empty: it passed the test
  std::int64_t step = 0;  // as its manifest says
  std::optional<BestClaim> claim = {};
};

// How much of a checkpoint is looked at: its manifest, or also that its files are there, with the sizes and headers
// that the manifest promises.
enum class CheckpointTest : std::uint8_t { manifest, shards };

// The checkpoints of a folder, the newest first: those that fail the test come before all others. A manifest of a newer
// version is Error{usage}; a folder or file that cannot be read, which is no damage, Error{failed}.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& folder,
                                              CheckpointTest test = CheckpointTest::manifest);
// Reads and checks manifest.json in a checkpoint's folder. Throws Error{corrupt}; Error{failed} if it cannot be read.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// The folder that a run writes its checkpoints to, locked against other runs for as long as this lives.
class CheckpointFolder {
 public:
  // Collective: rank 0 makes and locks the folder and removes what runs before left half written. Throws AgreedError
  // {usage} if another run holds it.
  CheckpointFolder(const std::filesystem::path& path, std::int64_t keep, FileSystem& system, comm::World& world,
                   Note note = {});
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  FileSystem& system() const { return system_; }
  // Where the checkpoint of a step is written until it is published: the same on all ranks, and no other run's.
  std::filesystem::path temporary(std::int64_t step) const;

  // Rank 0: locks the folder again, making it where it is gone, if somebody has removed it or its lock since. Throws
  // Error{usage} if another run has it by now.
  void keep_locked();
  // These were found damaged in their data: they are left as they are, and do not count among those that are kept.
  void pass_over(std::span<const std::filesystem::path> damaged);

  // Rank 0: writes the manifest into `temporary`, whose files are durable, puts it in place under the next serial, and
  // then removes the oldest ones beyond `keep` that nobody reads; with checkpoint.keep_best the best one stays. What an
  // earlier run kept as its best stays until a better one by the same measure is there, and is said once. One that
  // cannot be removed is said once, too: the new one is durable all the same.
  void publish(const std::filesystem::path& temporary, Manifest& manifest);
  // Is told of each that is durable, by whoever calls publish().
  using Published = std::function<void(std::int64_t step, const std::filesystem::path& place)>;
  void tell(Published published) { published_ = std::move(published); }

 private:
  void lock();
  bool holds_lock() const;
  void clean();
  void remove_tree(const std::filesystem::path& path) const;
  // But for the newest one of step `best`, if any.
  void remove_old(std::optional<std::int64_t> best);
  // Calls f(); what the system refuses is a note that `path` could not be removed.
  template <typename F>
  void try_to_remove(const std::filesystem::path& path, F&& f);
  void say_once(const std::filesystem::path& path, const std::string& text);

  std::filesystem::path path_;
  std::int64_t keep_;
  FileSystem& system_;
  Note note_;
  Published published_;
  std::vector<std::filesystem::path> damaged_;  // canonical
  std::set<std::filesystem::path> said_;        // of which something was said
  Descriptor lock_;                             // of its file
  bool made_ = false;                           // it was not there before
  std::uint64_t serial_ = 0;                    // of the newest
  std::string run_;                             // names this run's temporaries
};

}  // namespace strata::runtime
