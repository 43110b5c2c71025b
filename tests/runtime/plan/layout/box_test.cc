#include "runtime/plan/layout/box.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <numeric>

namespace strata::runtime {
namespace {

using Sizes = std::vector<std::uint64_t>;

std::uint64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{1}, std::multiplies<>());
}

// The element of the whole tensor that element `i` of the box is, index by index.
std::uint64_t place_of(const Box& box, std::uint64_t i) {
  Sizes index(box.shape.size());
  for (std::size_t d = index.size(); d-- > 0; i /= box.size[d]) index[d] = box.offset[d] + i % box.size[d];
  std::uint64_t at = 0;
  for (std::size_t d = 0; d < index.size(); ++d) at = at * box.shape[d] + index[d];
  return at;
}

Box any_box(const Sizes& shape) {
  Box box = Box::full(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (*rc::gen::inRange(0, 3) == 0) continue;
    box.offset[d] = *rc::gen::inRange<std::uint64_t>(0, shape[d]);
    box.size[d] = *rc::gen::inRange<std::uint64_t>(1, shape[d] - box.offset[d] + 1);
  }
  return box;
}

TEST(BoxTest, FindsCommonElementsIndexByIndex) {
  EXPECT_TRUE(rc::check([] {
    // The same tensor, with dimensions split in different ways.
    const auto shapes = *rc::gen::element(
        std::pair<Sizes, Sizes>({6, 12}, {6, 12}), std::pair<Sizes, Sizes>({6, 12}, {6, 3, 4}),
        std::pair<Sizes, Sizes>({3, 2, 12}, {6, 3, 4}), std::pair<Sizes, Sizes>({72}, {72}),
        std::pair<Sizes, Sizes>({6, 3, 4}, {6, 2, 6}), std::pair<Sizes, Sizes>({2, 3, 2, 3}, {2, 3, 2, 3}));
    const Box a = any_box(shapes.first), b = any_box(shapes.second);
    const auto range = [](const Box& box) {
      const auto begin = *rc::gen::inRange<std::uint64_t>(0, box.elements());
      return BoxRange{box, begin, *rc::gen::inRange<std::uint64_t>(begin, box.elements() + 1)};
    };
    const BoxRange x = range(a), y = range(b);
    std::map<std::uint64_t, std::uint64_t> in_x, expected, found;
    for (std::uint64_t i = x.begin; i < x.end; ++i) in_x[place_of(a, i)] = i;
    for (std::uint64_t j = y.begin; j < y.end; ++j)
      if (const auto same = in_x.find(place_of(b, j)); same != in_x.end()) expected[same->second] = j;
    for_common(x, y, [&](std::uint64_t i, std::uint64_t j, std::uint64_t count) {
      RC_ASSERT(count > 0);
      for (; count > 0; --count) RC_ASSERT(found.emplace(i++, j++).second);
    });
    RC_ASSERT(found == expected);
  }));
}

TEST(BoxTest, ContiguousPartsAreOneRun) {
  EXPECT_EQ(BoxRuns(Box::full({6, 3, 4})).count(), 1u);
  const BoxRuns rows({{6, 12}, {2, 0}, {3, 12}});
  EXPECT_EQ(rows.count(), 1u);
  EXPECT_EQ(rows.place(0), 24u);
  const BoxRuns columns({{6, 12}, {0, 3}, {6, 4}});
  EXPECT_EQ(columns.count(), 6u);
  EXPECT_EQ(columns.length(), 4u);
  EXPECT_EQ(columns.place(2), 27u);
  EXPECT_EQ(columns.first_after(0, 6), 0u);
  EXPECT_EQ(columns.first_after(0, 7), 1u);
  EXPECT_EQ(columns.first_after(0, 67), 6u);
}

TEST(BoxTest, Overlap) {
  const Box box{{6, 12}, {2, 3}, {2, 4}};
  EXPECT_TRUE(box.overlaps(box));
  EXPECT_TRUE(box.overlaps({{6, 12}, {3, 6}, {3, 6}}));
  EXPECT_FALSE(box.overlaps({{6, 12}, {4, 3}, {2, 4}}));
  EXPECT_FALSE(box.overlaps({{6, 12}, {2, 7}, {2, 5}}));
}

TEST(BoxTest, SplitDimensions) {
  for (const Sizes& split : {Sizes{6, 12}, Sizes{6, 3, 4}, Sizes{2, 3, 12}, Sizes{2, 3, 2, 2, 3}, Sizes{6, 12, 1}})
    EXPECT_TRUE(splits(split, {6, 12}) == (split.back() != 1)) << product(split);
  for (const Sizes& other : {Sizes{72}, Sizes{12, 6}, Sizes{6}, Sizes{6, 5, 4}, Sizes{4, 18}, Sizes{6, 0, 12}})
    EXPECT_FALSE(splits(other, {6, 12}));
  EXPECT_TRUE(splits({}, {}));
}

}  // namespace
}  // namespace strata::runtime
