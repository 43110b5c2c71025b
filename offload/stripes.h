#pragma once
#include <cstddef>
#include <cstdint>

#include "offload/io_options.h"

namespace strata::offload {

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
