#include "device/row_range.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace strata::device {
namespace {

// Over all windows, each row is in exactly one tile of its document, or is reported once as belonging to no document. A
// window's tiles start in it.
RC_GTEST_PROP(RowRange, EveryRowIsInOneTileOfOneWindow, ()) {
  const auto seq = *rc::gen::inRange<std::size_t>(1, 200), size = *rc::gen::inRange<std::size_t>(1, 40);
  std::vector<RowRange> documents;
  while (documents.size() < seq) {
    const auto first = static_cast<std::uint32_t>(documents.size());
    const auto rows = static_cast<std::uint32_t>(
        std::min<std::size_t>(*rc::gen::inRange<std::size_t>(1, 100), seq - documents.size()));
    documents.insert(documents.end(), rows, *rc::gen::arbitrary<bool>() ? RowRange{first, first + rows} : RowRange{});
  }
  std::vector<int> in_tiles(seq), of_none(seq);
  for (std::size_t begin = 0; begin < seq; begin += size) {
    for (TileIterator at(documents.data(), seq, begin, size); at.next();) {
      RC_ASSERT(at.row >= begin && at.row < begin + size);
      if (at.document.end == 0) {
        ++of_none[at.row];
        continue;
      }
      RC_ASSERT((at.row - at.document.first) % size == 0);
      for (std::size_t row = at.row; row < std::min<std::size_t>(at.row + size, at.document.end); ++row) {
        RC_ASSERT(documents[row] == at.document);
        ++in_tiles[row];
      }
    }
  }
  for (std::size_t row = 0; row < seq; ++row) {
    RC_ASSERT(in_tiles[row] == (documents[row].end > 0 ? 1 : 0));
    RC_ASSERT(of_none[row] == (documents[row].end > 0 ? 0 : 1));
  }
}

TEST(RowRange, WindowsOfSingleDocumentSequencesAreTiles) {
  const std::vector<RowRange> documents(150, {0, 150});
  for (std::size_t begin = 0; begin < 150; begin += 64) {
    TileIterator at(documents.data(), 150, begin, 64);
    EXPECT_TRUE(at.next());
    EXPECT_EQ(at.row, begin);
    EXPECT_EQ(at.document, documents[0]);
    EXPECT_FALSE(at.next());
  }
}

}  // namespace
}  // namespace strata::device
