#include "offload/stripes.h"

#include <algorithm>

namespace strata::offload {

Stripes::Stripes(std::uint64_t offset, std::uint64_t size, std::size_t drive, std::size_t drives)
    : begin_(offset), end_(offset + size), at_(offset), drives_(drives) {
  const std::uint64_t first = offset / kBlock, ahead = (drive + drives - first % drives) % drives;
  if (ahead != 0) at_ = (first + ahead) * kBlock;
}

BlockRange Stripes::next() {
  const std::uint64_t block = at_ / kBlock, block_end = (block + 1) * kBlock;
  const BlockRange range{block / drives_ * kBlock + at_ % kBlock, at_ - begin_,
                         static_cast<std::uint32_t>(std::min(end_, block_end) - at_)};
  at_ = (block + drives_) * kBlock;
  return range;
}

std::uint64_t file_bytes(std::uint64_t bytes, std::size_t drive, std::size_t drives) {
  const std::uint64_t blocks = (bytes + kBlock - 1) / kBlock;
  return (blocks / drives + (drive < blocks % drives ? 1 : 0)) * kBlock;
}

}  // namespace strata::offload
