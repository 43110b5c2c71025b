#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/files/descriptor.h"

namespace strata::runtime {

// A file of a checkpoint, open for reading. Damage that was seen is told from what could not be looked at, which may be
// whole: Error{corrupt} if the file is not there, is no regular file or ends too soon; Error{failed} with the system's
// reason and what to do about it for everything else (no permission, too many open files, a drive that fails).
class ReadableFile {
 public:
  explicit ReadableFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }  // when it was opened

  // Fills `out` from `offset` on. Thread-safe.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  // Says that it will be read soon.
  void prefetch(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t bytes_ = 0;
};

// What lies at a path, links followed: `not_found` only if the system says so. Throws Error{failed} as above.
std::filesystem::file_type type_at(const std::filesystem::path& path);

// Throws Error{failed}: "PATH cannot be WHAT: the system's words; what to do".
[[noreturn]] void unreadable(const std::filesystem::path& path, const char* what, int reason);

}  // namespace strata::runtime
