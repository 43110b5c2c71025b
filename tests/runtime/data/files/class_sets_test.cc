
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cstddef>
#include <set>

#include "runtime/data/files/label_column.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::uint32_t> words_of(const ClassSets& sets, std::int32_t set, std::size_t words) {
  std::vector<std::uint32_t> out(words, 0xdeadbeef);
  sets.write(set, out);
  return out;
}

TEST(ClassSetsTest, AClassIsABitOfTheWordsInItsOrder) {
  ClassSets sets(90);
  EXPECT_EQ(sets.add(std::vector{31, 0, 89, 32}), 0);
  EXPECT_EQ(sets.add({}), 1);
  EXPECT_EQ(sets.add(std::vector{64, 64}), 2);
  EXPECT_THAT(words_of(sets, 0, 3), ElementsAre(0x80000001u, 1u, 1u << 25));
  EXPECT_THAT(words_of(sets, 1, 3), ElementsAre(0u, 0u, 0u));
  EXPECT_THAT(words_of(sets, 2, 3), ElementsAre(0u, 0u, 1u));
  EXPECT_THAT(sets.of(0), ElementsAre(31, 0, 89, 32));
  EXPECT_THAT(sets.of(1), IsEmpty());
}

// A column of labels states exactly the bytes that it and its sets take.
TEST(ClassSetsTest, MoveIntoThePlannedMemoryWithTheirColumn) {
  EXPECT_TRUE(rc::check([] {
    const auto classes = *rc::gen::element<std::size_t>(32, 90, 65536);
    const auto made =
        *rc::gen::container<std::vector<std::vector<std::int32_t>>>(rc::gen::container<std::vector<std::int32_t>>(
            rc::gen::inRange<std::int32_t>(0, static_cast<std::int32_t>(classes))));
    LabelColumn column{ClassSets(classes)};
    for (const auto& set : made) column.push_back(column.sets()->add(set));
    std::vector<std::byte> planned(column.bytes());
    std::pmr::monotonic_buffer_resource memory(planned.data(), planned.size(), std::pmr::null_memory_resource());
    column.keep_in(&memory);
    column.keep_in(&memory);  // it is there
    RC_ASSERT(column.size() == made.size());
    for (std::size_t i = 0; i < made.size(); ++i) {
      const auto words = words_of(*column.sets(), column[i], (classes + 31) / 32);
      const std::set<std::int32_t> wanted(made[i].begin(), made[i].end());
      std::size_t bits = 0;
      for (const std::uint32_t word : words) bits += static_cast<std::size_t>(std::popcount(word));
      RC_ASSERT(bits == wanted.size());
      for (const std::int32_t c : wanted) RC_ASSERT((words[static_cast<std::size_t>(c) / 32] >> c % 32 & 1) == 1u);
    }
  }));
}

}  // namespace
}  // namespace strata::runtime
