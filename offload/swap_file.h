#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files/descriptor.h"
#include "offload/io_options.h"

namespace strata::offload {

// One drive's part of a tier: an unnamed file of `bytes` bytes in `folder`, which disappears however the run ends. The
// constructor reserves its space. Throws Error{usage} if the folder cannot be written, Error{does_not_fit} with the
// bytes needed and free, Error{failed} with folder and reason.
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
  // Warnings about this folder for the user: it is memory instead of a drive, or its bytes could not be reserved.
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

// A range of bytes inside one block: its offset in a drive's file, and its distance from the call's first byte.
struct BlockRange {
  std::uint64_t file_offset = 0;
  std::uint64_t from_start = 0;
  std::uint32_t size = 0;
};

// The ranges of [offset, offset + size) that lie on one of several drives, in order. Block b of the tier is block b /
// drives in the file of drive b % drives.
class Stripes {
 public:
  Stripes() = default;
  Stripes(std::uint64_t offset, std::uint64_t size, std::size_t drive, std::size_t drives);

  bool empty() const { return at_ >= end_; }
  BlockRange next();

 private:
  std::uint64_t begin_ = 0, end_ = 0, at_ = 0;  // at_: the tier offset of the next range's first byte
  std::uint64_t drives_ = 1;
};

// The size of `drive`'s file for a tier of `bytes` bytes, rounded up to blocks.
std::uint64_t file_bytes(std::uint64_t bytes, std::size_t drive, std::size_t drives);

}  // namespace strata::offload
