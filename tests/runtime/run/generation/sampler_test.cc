#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "runtime/run/generation/generator.h"

namespace strata::runtime {
namespace {

const std::vector<float> kLogits = {std::log(4.0f), std::log(8.0f), std::log(2.0f), std::log(2.0f)};
const double kProbabilities[] = {0.25, 0.5, 0.125, 0.125};

std::vector<int> counts(Sampler sampler, int n) {
  std::vector<int> count(kLogits.size());
  for (int i = 0; i < n; ++i) ++count[sampler.pick(kLogits, static_cast<std::uint64_t>(i))];
  return count;
}

TEST(SamplerTest, TemperatureZeroSelectsTheFirstLargest) {
  const std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(Sampler(0, 1, 5).pick(logits, 0), 1u);
}

TEST(SamplerTest, SamplesByProbability) {
  constexpr int kDraws = 20000;
  const std::vector<int> count = counts({1, 1, 3}, kDraws);
  for (std::size_t t = 0; t < count.size(); ++t) {
    const double p = kProbabilities[t], deviation = std::sqrt(kDraws * p * (1 - p));
    EXPECT_NEAR(count[t], kDraws * p, 5 * deviation) << t;
  }
}

TEST(SamplerTest, TemperatureSharpens) {
  // p^2, normalised: 4, 16, 1 and 1 of 22.
  const std::vector<int> count = counts({0.5, 1, 3}, 20000);
  EXPECT_NEAR(count[1], 20000 * 16.0 / 22, 400);
}

TEST(SamplerTest, TopPKeepsTheLikeliestTokens) {
  EXPECT_THAT(counts({1, 0.5, 3}, 1000), testing::ElementsAre(0, 1000, 0, 0));
  const std::vector<int> count = counts({1, 0.7, 3}, 3000);
  EXPECT_EQ(count[2] + count[3], 0);
  EXPECT_NEAR(count[0], 1000, 130) << "1 to 2 between those that are left";
}

// If tokens are equally likely, it keeps the fewest that reach the probability together, the lowest ids first.
TEST(SamplerTest, TopPStopsWhereItIsReachedExactly) {
  const std::vector<float> logits = {1, 1, 1, 1};
  for (const int kept : {1, 2, 3, 4}) {
    Sampler sampler(1, kept / 4.0, 3);
    std::set<std::uint32_t> drawn;
    for (std::uint64_t n = 0; n < 200; ++n) drawn.insert(sampler.pick(logits, n));
    EXPECT_EQ(drawn.size(), static_cast<std::size_t>(kept));
    EXPECT_EQ(*drawn.rbegin(), static_cast<std::uint32_t>(kept - 1));
  }
}

TEST(SamplerTest, SamplesDependOnlyOnSeedAndPlace) {
  Sampler a(1, 1, 9), b(1, 1, 9);
  std::set<std::vector<std::uint32_t>> texts;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Sampler other(1, 1, seed);
    std::vector<std::uint32_t> drawn;
    for (std::uint64_t n = 0; n < 30; ++n) drawn.push_back(other.pick(kLogits, n));
    texts.insert(drawn);
  }
  EXPECT_EQ(texts.size(), 4u);
  (void)a.pick(kLogits, 0);
  for (std::uint64_t n = 5; n < 20; ++n) EXPECT_EQ(a.pick(kLogits, n), b.pick(kLogits, n));
}

}  // namespace
}  // namespace strata::runtime
