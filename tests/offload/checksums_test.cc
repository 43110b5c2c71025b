#include <gtest/gtest.h>

#include <array>

#include "offload/io_options.h"
#include "offload/swap.h"

namespace strata::offload {
namespace {

TEST(Checksums, NameTheFirstWrongPage) {
  std::vector<std::byte> bytes(4 * kPage, std::byte{7});
  Checksums checksums(8 * kPage);
  checksums.record(2 * kPage, bytes);
  EXPECT_EQ(checksums.mismatch(2 * kPage, bytes), std::nullopt);
  bytes[2 * kPage + 5] ^= std::byte{1};
  bytes[3 * kPage] ^= std::byte{1};
  EXPECT_EQ(checksums.mismatch(2 * kPage, bytes), 4 * kPage);
  // Partial reads are compared too, and overwritten pages are compared with their newest contents.
  EXPECT_EQ(checksums.mismatch(5 * kPage, std::span(bytes).subspan(3 * kPage)), 5 * kPage);
  checksums.record(5 * kPage, std::span(bytes).subspan(3 * kPage));
  EXPECT_EQ(checksums.mismatch(5 * kPage, std::span(bytes).subspan(3 * kPage)), std::nullopt);
}

TEST(Checksums, UnwrittenPagesPass) {
  const std::vector<std::byte> bytes(kPage, std::byte{3});
  EXPECT_EQ(Checksums(2 * kPage).mismatch(kPage, bytes), std::nullopt);
}

}  // namespace
}  // namespace strata::offload
