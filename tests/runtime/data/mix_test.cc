#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>

#include "runtime/data/batches.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;

std::vector<std::size_t> first(const std::vector<double>& weights, std::uint64_t count) {
  const Mix mix(weights);
  std::vector<std::size_t> out;
  for (std::uint64_t p = 0; p < count; ++p) out.push_back(mix.at(p).source);
  return out;
}

// Part of the numerics contract: other values here are other training runs. (The same from a second implementation, in
// Python.)
TEST(MixTest, NeverChanges) {
  EXPECT_THAT(first({2.5}, 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(first({1, 1}, 6), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(first({0.7, 0.2, 0.1}, 10), ElementsAre(0, 1, 0, 0, 2, 0, 0, 0, 1, 0));
  const auto far = Mix(std::vector{0.7, 0.2, 0.1}).at(123'456'789'012'345);
  EXPECT_EQ(far.source, 2u);
  EXPECT_EQ(far.index, 12'345'678'906'983u);
}

TEST(MixTest, CountsWhatItGives) {
  const bool held = rc::check("each source's index counts up, and shares are kept at every position", [] {
    const auto weights = *rc::gen::nonEmpty(rc::gen::container<std::vector<double>>(
        rc::gen::map(rc::gen::inRange(1, 1000), [](int x) { return x / 100.0; })));
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const Mix mix(weights);
    std::vector<std::uint64_t> taken(weights.size());
    for (std::uint64_t p = 0; p < 500; ++p) {
      for (std::size_t s = 0; s < weights.size(); ++s) {
        RC_ASSERT(mix.count(s, p) == taken[s]);
        RC_ASSERT(std::abs(static_cast<double>(taken[s]) - static_cast<double>(p) * weights[s] / sum) <=
                  0.5 * static_cast<double>(s + 1) + 1e-6);  // weights are taken to 2^-31
      }
      const Mix::Place place = mix.at(p);
      RC_ASSERT(place.index == taken[place.source]);
      ++taken[place.source];
    }
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace strata::runtime
