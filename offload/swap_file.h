#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files/descriptor.h"

namespace strata::offload {

// One drive's part of a tier: an unnamed file of `bytes` bytes in `folder`, so that nothing of it remains however the
// run ends. Its space is reserved at once. Throws Error{usage} if the folder cannot be written, Error{does_not_fit}
// with the bytes needed and free, Error{failed} with folder and reason.
class SwapFile {
 public:
  SwapFile(std::filesystem::path folder, std::uint64_t bytes, int rank);

  int descriptor() const { return file_.get(); }
  const std::filesystem::path& folder() const { return folder_; }
  std::uint64_t bytes() const { return bytes_; }
  // "the swap file of rank 0 in /scratch".
  std::string name() const;
  // Switches between bypassing the page cache and using it; returns 0 or an errno.
  int set_direct(bool direct);
  // A warning about this folder for the user: it is memory instead of a drive, or its bytes could not be reserved.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void open();
  void preallocate();
  [[noreturn]] void too_small(std::uint64_t available) const;

  std::filesystem::path folder_;
  std::uint64_t bytes_;
  int rank_;
  Descriptor file_;
  std::vector<std::string> notes_;
};

// The system's message for an errno.
std::string error_text(int error);

// The type of the file system that holds `folder`, as the kernel's list of mounts names it ("ext4"), or "".
std::string file_system_of(const std::filesystem::path& folder);

}  // namespace strata::offload
