#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>
#include <vector>

#include "offload/swap_file.h"

namespace strata::offload {
namespace {

TEST(Stripes, OneDrivePiecesEndAtBlocks) {
  Stripes stripes(kBlock - kPage, 2 * kBlock, 0, 1);
  std::vector<std::uint32_t> sizes;
  std::vector<std::uint64_t> offsets;
  while (!stripes.empty()) {
    const BlockRange range = stripes.next();
    offsets.push_back(range.file_offset);
    sizes.push_back(range.size);
  }
  EXPECT_EQ(sizes, (std::vector<std::uint32_t>{kPage, kBlock, kBlock - kPage}));
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{kBlock - kPage, kBlock, 2 * kBlock}));
}

TEST(Stripes, BlocksRotateOverDrives) {
  Stripes second(0, 7 * kBlock, 1, 3);
  EXPECT_EQ(second.next().from_start, 1 * kBlock);
  const BlockRange range = second.next();
  EXPECT_EQ(range.from_start, 4 * kBlock);
  EXPECT_EQ(range.file_offset, 1 * kBlock);
  EXPECT_TRUE(second.empty());
}

// The drives' ranges cover the call, each byte once, inside their files, and no two bytes of a tier share a place.
TEST(Stripes, EveryByteHasOnePlace) {
  const bool holds = rc::check([] {
    const std::uint64_t drives = *rc::gen::inRange<std::uint64_t>(1, 6);
    const std::uint64_t pages = *rc::gen::inRange<std::uint64_t>(1, 5000);
    const std::uint64_t first = *rc::gen::inRange<std::uint64_t>(0, pages);
    const std::uint64_t count = *rc::gen::inRange<std::uint64_t>(0, pages - first + 1);
    std::vector<int> covered(count);
    std::set<std::pair<std::uint64_t, std::uint64_t>> places;
    for (std::uint64_t drive = 0; drive < drives; ++drive) {
      Stripes stripes(first * kPage, count * kPage, drive, drives);
      while (!stripes.empty()) {
        const BlockRange range = stripes.next();
        RC_ASSERT(range.size > 0 && range.size <= kBlock && range.size % kPage == 0);
        RC_ASSERT(range.file_offset + range.size <= file_bytes(pages * kPage, drive, drives));
        for (std::uint64_t page = 0; page < range.size / kPage; ++page) {
          ++covered[range.from_start / kPage + page];
          RC_ASSERT(places.emplace(drive, range.file_offset + page * kPage).second);
        }
      }
    }
    for (const int times : covered) RC_ASSERT(times == 1);
  });
  EXPECT_TRUE(holds);
}

// A byte's place depends on its offset alone, not on the call that moves it.
TEST(Stripes, PlaceDoesNotDependOnTheCall) {
  Stripes whole(0, 9 * kBlock, 2, 3);
  whole.next();
  const BlockRange expected = whole.next();  // block 5
  Stripes part(5 * kBlock + kPage, kPage, 2, 3);
  EXPECT_EQ(part.next().file_offset, expected.file_offset + kPage);
}

}  // namespace
}  // namespace strata::offload
