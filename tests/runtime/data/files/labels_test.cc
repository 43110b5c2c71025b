#include "runtime/data/files/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <bit>
#include <cstddef>
#include <set>

#include "device/ops/losses/losses.h"

namespace strata::runtime {
namespace {

constexpr std::int32_t kLabelColumnNone = device::kIgnoredLabel;

// The largest label that fits in addition to the one that does not count, and the bytes that each needs.
TEST(LabelColumnTest, UsesTheSmallestSufficientWidth) {
  struct Case {
    std::uint64_t kinds;
    std::size_t bytes;
  };
  for (const auto& [kinds, bytes] :
       {Case{2, 1}, Case{255, 1}, Case{256, 2}, Case{65535, 2}, Case{65536, 4}, Case{std::uint64_t{1} << 32, 4}}) {
    LabelColumn column(kinds);
    const std::size_t empty = column.bytes();
    const auto last = static_cast<std::int32_t>(static_cast<std::uint32_t>(kinds - 1));
    for (const std::int32_t label : {0, last, kLabelColumnNone, 1}) column.push_back(label);
    EXPECT_EQ(column.bytes() - empty, 4 * bytes) << kinds;
    ASSERT_EQ(column.size(), 4u);
    EXPECT_EQ(column[0], 0);
    EXPECT_EQ(column[1], last);
    EXPECT_EQ(column[2], kLabelColumnNone);
    EXPECT_EQ(column[3], 1);
    EXPECT_EQ(column.counting(0, 4), 3u);
    EXPECT_EQ(column.counting(2, 1), 0u);
  }
}

TEST(LabelColumnTest, MovesIntoItsPlannedMemory) {
  EXPECT_TRUE(rc::check([] {
    const auto kinds = *rc::gen::element<std::uint64_t>(3, 300, 70000);
    const auto labels = *rc::gen::container<std::vector<std::int32_t>>(rc::gen::oneOf(
        rc::gen::just(kLabelColumnNone), rc::gen::inRange<std::int32_t>(0, static_cast<std::int32_t>(kinds))));
    LabelColumn column(kinds);
    for (const std::int32_t label : labels) column.push_back(label);
    std::vector<std::byte> planned(column.bytes());
    std::pmr::monotonic_buffer_resource memory(planned.data(), planned.size(), std::pmr::null_memory_resource());
    column.keep_in(&memory);
    column.keep_in(&memory);  // it is there
    RC_ASSERT(column.size() == labels.size());
    for (std::size_t i = 0; i < labels.size(); ++i) RC_ASSERT(column[i] == labels[i]);
  }));
}

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::uint32_t> split_list(const ClassSets& sets, std::int32_t set, std::size_t words) {
  std::vector<std::uint32_t> out(words, 0xdeadbeef);
  sets.write(set, out);
  return out;
}

TEST(ClassSetsTest, ClassesAreBitsInOrder) {
  ClassSets sets(90);
  EXPECT_EQ(sets.add(std::vector{31, 0, 89, 32}), 0);
  EXPECT_EQ(sets.add({}), 1);
  EXPECT_EQ(sets.add(std::vector{64, 64}), 2);
  EXPECT_THAT(split_list(sets, 0, 3), ElementsAre(0x80000001u, 1u, 1u << 25));
  EXPECT_THAT(split_list(sets, 1, 3), ElementsAre(0u, 0u, 0u));
  EXPECT_THAT(split_list(sets, 2, 3), ElementsAre(0u, 0u, 1u));
  EXPECT_THAT(sets.of(0), ElementsAre(31, 0, 89, 32));
  EXPECT_THAT(sets.of(1), IsEmpty());
}

// A column of labels states exactly how many bytes it and its sets need.
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
      const auto words = split_list(*column.sets(), column[i], (classes + 31) / 32);
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
