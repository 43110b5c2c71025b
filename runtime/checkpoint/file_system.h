#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace strata::runtime {

// A new file that is written in pieces. Errors name path, offset and the system's reason (Error{failed}).
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Writes all of `bytes` at `offset`. Pieces whose memory, offset and size are multiples of kDirectAlignment may pass
  // by the page cache.
  virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Returns once everything written is on the disk.
  virtual void sync() = 0;
};
inline constexpr std::size_t kDirectAlignment = 4096;

// What a checkpoint does to a disk, and all it does: the tests put their own beneath it, which fail, record, or lose
// what was not synced. Errors are Error{failed} with path and the system's reason.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A file that is not there yet.
  virtual std::unique_ptr<WritableFile> create(const std::filesystem::path& path) = 0;
  // A folder in one that is there; may be there itself.
  virtual void make_folder(const std::filesystem::path& path) = 0;
  // Returns once the folder's entries are on the disk.
  virtual void sync_folder(const std::filesystem::path& path) = 0;
  // `to` must not be there.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void remove_file(const std::filesystem::path& path) = 0;
  // An empty folder.
  virtual void remove_folder(const std::filesystem::path& path) = 0;
};

// A folder, with those above it, each of whose entries is on the disk then; may be there.
void make_durable_folder(FileSystem& system, const std::filesystem::path& path);

std::unique_ptr<FileSystem> posix_file_system();

}  // namespace strata::runtime
