#include "runtime/data/sequences/best_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using Numbers = std::vector<std::uint32_t>;

TEST(NumberSetTest, FindsTheNextOne) {
  const bool held = rc::check("as a std::set does", [] {
    const auto size = *rc::gen::element<std::uint64_t>(1, 63, 64, 65, 4096, 4097, 300'000);
    NumberSet set(size);
    std::set<std::uint64_t> wanted;
    for (int i = 0; i < 200; ++i) {
      const auto x = *rc::gen::inRange<std::uint64_t>(0, size);
      if (*rc::gen::inRange(0, 3) > 0) {
        set.insert(x);
        wanted.insert(x);
      } else if (!wanted.empty()) {
        const std::uint64_t gone = *wanted.lower_bound(*wanted.rbegin() * x / size);
        set.erase(gone);
        wanted.erase(gone);
      }
      const auto from = *rc::gen::inRange<std::uint64_t>(0, size);
      const auto next = wanted.lower_bound(from);
      RC_ASSERT(set.next(from) == (next == wanted.end() ? size : *next));
    }
  });
  EXPECT_TRUE(held);
}

// Part of the numerics contract: other bins are other training runs.
TEST(BestFitTest, TheLongestFirstIntoTheLeastRoom) {
  BestFit packer(10);
  const auto& bins = packer.pack(Numbers{3, 7, 5, 3, 10, 2, 5, 1});
  //  10 | 7 3 | 5 5 | 3 2 1
  EXPECT_THAT(bins.items, ElementsAre(4, 1, 0, 2, 6, 3, 5, 7));
  EXPECT_THAT(bins.ends, ElementsAre(1, 3, 5, 8));
  // Of two bins with as much room the one that changed last: 2 goes to the second 6, the other 2 to the first.
  const auto& again = packer.pack(Numbers{6, 6, 2, 2});
  EXPECT_THAT(again.items, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(again.ends, ElementsAre(1, 4));
  EXPECT_TRUE(packer.pack({}).ends.empty());
}

// Against a packer that looks at every bin.
TEST(BestFitTest, IsBestFitDecreasing) {
  const bool held = rc::check("the same bins as a slow one", [] {
    const auto room = *rc::gen::element<std::uint32_t>(1, 2, 64, 100, 1024, 5000);
    const auto lengths = *rc::gen::container<Numbers>(rc::gen::inRange<std::uint32_t>(1, room + 1));
    struct Bin {
      std::uint32_t left;
      std::size_t changed;
      Numbers items;
    };
    std::vector<Bin> slow;
    Numbers order(lengths.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return lengths[a] > lengths[b]; });
    for (std::size_t k = 0; k < order.size(); ++k) {
      Bin* best = nullptr;
      for (Bin& bin : slow) {
        if (bin.left < lengths[order[k]]) continue;
        if (!best || bin.left < best->left || (bin.left == best->left && bin.changed > best->changed)) best = &bin;
      }
      if (!best) best = &slow.emplace_back(Bin{room, 0, {}});
      best->left -= lengths[order[k]];
      best->changed = k;
      best->items.push_back(order[k]);
    }
    Numbers items, ends;
    for (const Bin& bin : slow) {
      items.insert(items.end(), bin.items.begin(), bin.items.end());
      ends.push_back(static_cast<std::uint32_t>(items.size()));
    }
    BestFit packer(room);
    for (int times = 0; times < 2; ++times) {  // nothing is left of the first
      const auto& bins = packer.pack(lengths);
      RC_ASSERT(bins.items == items);
      RC_ASSERT(bins.ends == ends);
    }
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace strata::runtime
