#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/files/descriptor.h"

namespace strata {

// A file that appears whole or not at all: written beside `path` without a name, or under a temporary one, and renamed
// by commit(). Without commit() the destructor removes it. Throws Error{failed} with path and the system's reason, or
// Error{usage} if its folder is not there or something other than a regular file lies at `path`.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Writes through to the disk, renames, and writes the folder through.
  void commit();

 private:
  [[noreturn]] void failed(const char* what) const;
  std::filesystem::path folder() const;

  std::filesystem::path path_, temporary_;
  Descriptor file_;
  bool named_ = false;  // the temporary has its name
};

}  // namespace strata
