#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/files/descriptor.h"

namespace strata {

// A file that appears complete or not at all. It is written next to `path`, unnamed or under a temporary name, and
// commit() renames it. Without commit(), the destructor removes it. Throws Error{failed} with the path and the system's
// reason, or Error{usage} if its folder does not exist or `path` exists and is not a regular file.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Syncs the file to the disk, renames it, and syncs the folder.
  void commit();

 private:
  [[noreturn]] void failed(const char* what) const;
  std::filesystem::path folder() const;

  std::filesystem::path path_, temporary_;
  Descriptor file_;
  bool named_ = false;  // the temporary file has its name
};

}  // namespace strata
