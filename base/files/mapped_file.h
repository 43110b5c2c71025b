#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

#include "base/files/descriptor.h"

namespace strata {

// A file mapped read-only; owns the mapping. An empty file maps to an empty span. Throws Error{failed} with the path
// and the system's reason. Throws Error{usage} if the path does not exist or is not a regular file, or if a broken link
// or a Git LFS pointer is in the file's place.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Throws Error{corrupt} if the file has shrunk since it was mapped. Reading past its end would raise SIGBUS.
  void require_untruncated() const;
  // will_need() starts reading part of a mapping from the disk. release() frees the memory of a part, and the next
  // access reads it again. Both are advice.
  static void will_need(std::span<const std::byte> part);
  static void release(std::span<const std::byte> part);

 private:
  std::filesystem::path path_;
  Descriptor file_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace strata
