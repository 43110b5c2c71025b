#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "runtime/data/sequences/packed_sequences.h"

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
      RC_ASSERT(set.last() == (wanted.empty() ? size : *wanted.rbegin()));
    }
  });
  EXPECT_TRUE(held);
}

struct Bin {
  std::uint32_t left;
  std::size_t changed;
  Numbers items;
};

// A packer that checks every bin. The first items, up to a total length of `spread`, go into the emptiest of `first`
// bins.
std::vector<Bin> packed_slowly(const Numbers& lengths, std::uint32_t capacity, std::size_t first,
                               std::uint64_t spread) {
  std::vector<Bin> bins(first);
  for (std::size_t b = 0; b < first; ++b) bins[b] = {capacity, first - b, {}};
  Numbers order(lengths.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return lengths[a] > lengths[b]; });
  std::uint64_t placed = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    Bin* best = nullptr;
    for (Bin& bin : bins) {
      if (bin.left < lengths[order[k]]) continue;
      const bool better = !best || (placed < spread ? bin.left > best->left : bin.left < best->left);
      if (better || (bin.left == best->left && bin.changed > best->changed)) best = &bin;
    }
    if (!best) best = &bins.emplace_back(Bin{capacity, 0, {}});
    best->left -= lengths[order[k]];
    best->changed = first + 1 + k;
    best->items.push_back(order[k]);
    placed += lengths[order[k]];
  }
  return bins;
}

// The bins are part of the numerics contract: other bins would make other training runs.
TEST(BestFitTest, SpreadsTheLongestAndFillsByBestFit) {
  BestFit packer(10);
  // A total length of 20 goes into two bins: 15 are spread (6, 5 and 4), and the others go where the least space
  // remains.
  const auto& bins = packer.pack(Numbers{2, 6, 1, 5, 4, 2});
  EXPECT_THAT(bins.items, ElementsAre(1, 0, 5, 3, 4, 2));  //  6 2 2 | 5 4 1
  EXPECT_THAT(bins.ends, ElementsAre(3, 6));
  EXPECT_TRUE(packer.pack({}).ends.empty());
}

TEST(BestFitTest, UsesBestFitAloneIfSpreadingNeedsMoreBins) {
  BestFit packer(10);
  // If items were spread over three bins, 5 and 4 would share bins with 5 and 4, and 6 would be alone.
  const auto& bins = packer.pack(Numbers{6, 5, 5, 4, 4, 3, 3});
  EXPECT_THAT(bins.items, ElementsAre(0, 3, 1, 2, 4, 5, 6));  //  6 4 | 5 5 | 4 3 3
  EXPECT_THAT(bins.ends, ElementsAre(2, 4, 7));
}

// Compares with a packer that checks every bin.
TEST(BestFitTest, AgreesWithASlowPacker) {
  int spread = 0, alone = 0;
  const auto same_bins = [&] {
    const auto capacity = *rc::gen::element<std::uint32_t>(1, 2, 64, 100, 1024, 5000);
    const auto shortest = *rc::gen::inRange<std::uint32_t>(1, capacity + 1);
    const auto lengths = *rc::gen::container<Numbers>(rc::gen::inRange<std::uint32_t>(shortest, capacity + 1));
    const std::uint64_t total = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
    auto slow = packed_slowly(lengths, capacity, 0, 0);
    auto other = packed_slowly(lengths, capacity, (total + capacity - 1) / capacity, total - total / 4);
    const bool taken = other.size() <= slow.size() + slow.size() / 200;
    ++(taken ? spread : alone);
    if (taken) slow = other;
    Numbers items, ends;
    for (const Bin& bin : slow) {
      RC_ASSERT(!bin.items.empty());
      items.insert(items.end(), bin.items.begin(), bin.items.end());
      ends.push_back(static_cast<std::uint32_t>(items.size()));
    }
    RC_ASSERT(ends.size() <= 2 * total / capacity + 1);  // what the index has capacity for
    BestFit packer(capacity);
    for (int times = 0; times < 2; ++times) {  // nothing is left of the first
      const auto& bins = packer.pack(lengths);
      RC_ASSERT(bins.items == items);
      RC_ASSERT(bins.ends == ends);
    }
  };
  // A few of a hundred inputs are packed by best fit alone, and sometimes none is.
  for (int round = 0; round < 5; ++round) EXPECT_TRUE(rc::check("the same bins as a slow one", same_bins));
  EXPECT_GT(spread, 0);
  EXPECT_GT(alone, 0);
}

// A step has few sequences, and sequences with documents of one length are a poor sample of the data.
TEST(BestFitTest, BinsHoldLongAndShortItems) {
  std::mt19937 random(1);
  Numbers lengths(20'000);
  for (std::uint32_t& length : lengths) length = 8 + random() % 120;
  const auto between = [&](const BestFit::Bins& bins) {  // the variance of bins' means, over that of lengths
    double sum = 0, squares = 0, of_means = 0;
    for (const std::uint32_t length : lengths) sum += length, squares += static_cast<double>(length) * length;
    const double mean = sum / static_cast<double>(lengths.size());
    for (std::size_t b = 0, k = 0; b < bins.ends.size(); ++b) {
      double of_bin = 0;
      const std::size_t first = k;
      for (; k < bins.ends[b]; ++k) of_bin += lengths[bins.items[k]];
      of_means += of_bin * of_bin / static_cast<double>(k - first);
    }
    const double all = mean * mean * static_cast<double>(lengths.size());
    return (of_means - all) / (squares - all);
  };
  BestFit packer(512);
  const auto& bins = packer.pack(lengths);
  EXPECT_LT(between(bins), 0.15);  // best fit alone: 0.9
  const double rows = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  EXPECT_GT(rows / (512.0 * static_cast<double>(bins.ends.size())), 0.99);
}

}  // namespace
}  // namespace strata::runtime
