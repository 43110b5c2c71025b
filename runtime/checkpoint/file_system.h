#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

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

// Every operation of a checkpoint on a disk. Tests substitute file systems that fail, record, or lose what was not
// synced. Errors are Error{failed} with path and the system's reason.
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

}  // namespace strata::runtime
