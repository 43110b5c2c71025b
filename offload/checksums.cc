#include "offload/checksums.h"

#include <xxhash.h>

#include "offload/io_options.h"

namespace strata::offload {
namespace {

std::uint64_t checksum_of(const std::byte* page) {
  const std::uint64_t sum = XXH3_64bits(page, kPage);
  return sum == 0 ? 1 : sum;
}

}  // namespace

Checksums::Checksums(std::uint64_t bytes) : pages_((bytes + kPage - 1) / kPage) {}

void Checksums::record(std::uint64_t offset, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kPage)
    pages_[(offset + at) / kPage] = checksum_of(bytes.data() + at);
}

std::optional<std::uint64_t> Checksums::mismatch(std::uint64_t offset, std::span<const std::byte> bytes) const {
  for (std::size_t at = 0; at < bytes.size(); at += kPage) {
    const std::uint64_t expected = pages_[(offset + at) / kPage];
    if (expected != 0 && expected != checksum_of(bytes.data() + at)) return offset + at;
  }
  return std::nullopt;
}

}  // namespace strata::offload
