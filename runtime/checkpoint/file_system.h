#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/files/descriptor.h"

namespace strata::runtime {

// A new file, written in pieces. Errors are Error{failed} with path, offset and the system's reason.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Writes all of `bytes` at `offset`. A piece may bypass the page cache if its memory, offset and size are multiples
  // of kDirectAlignment.
  virtual void write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Returns when everything written is on the disk.
  virtual void sync() = 0;
};
inline constexpr std::size_t kDirectAlignment = 4096;

// Every operation of a checkpoint on a disk. Tests substitute file systems that fail, record, or lose unsynced data.
// Errors are Error{failed} with path and the system's reason.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // The file must not exist.
  virtual std::unique_ptr<WritableFile> create(const std::filesystem::path& path) = 0;
  // The parent must exist; the folder itself may exist already.
  virtual void make_folder(const std::filesystem::path& path) = 0;
  // Returns when the folder's entries are on the disk.
  virtual void sync_folder(const std::filesystem::path& path) = 0;
  // `to` must not exist.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void remove_file(const std::filesystem::path& path) = 0;
  // The folder must be empty.
  virtual void remove_folder(const std::filesystem::path& path) = 0;
};

// Creates a folder and its missing ancestors, and syncs each new entry to the disk. The folder may exist already.
void make_durable_folder(FileSystem& system, const std::filesystem::path& path);

std::unique_ptr<FileSystem> posix_file_system();

// A checkpoint file, open for reading. Distinguishes damage from files that could not be examined and may be intact:
// Error{corrupt} if the file is missing, not a regular file, or too short; Error{failed}, with the system's reason and
// advice, for everything else (no permission, too many open files, a failing drive).
class ReadableFile {
 public:
  explicit ReadableFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }  // when it was opened

  // Fills `out` from `offset` on. Thread-safe.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  // Advises the system that this range will be read soon.
  void prefetch(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t bytes_ = 0;
};

// The type of the file at a path, following links; `not_found` only if the system reports that. Throws Error{failed} as
// above.
std::filesystem::file_type type_at(const std::filesystem::path& path);

// Throws Error{failed}: "PATH cannot be WHAT: the system's reason; what to do".
[[noreturn]] void unreadable(const std::filesystem::path& path, const char* what, int reason);

}  // namespace strata::runtime
