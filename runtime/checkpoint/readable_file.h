#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/files/descriptor.h"

namespace strata::runtime {

// A checkpoint file, open for reading. Damage is distinguished from files that could not be examined and may be intact:
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

// The type of what is at a path, links followed; `not_found` only if the system says so. Throws Error{failed} as above.
std::filesystem::file_type type_at(const std::filesystem::path& path);

// Throws Error{failed}: "PATH cannot be WHAT: the system's reason; what to do".
[[noreturn]] void unreadable(const std::filesystem::path& path, const char* what, int reason);

}  // namespace strata::runtime
