#include "device/numeric/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace strata::device {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();

ExactSum sum_of(const std::vector<double>& terms) {
  ExactSum s;
  for (const double x : terms) s.add(x);
  return s;
}

std::uint64_t bits(double x) {
  return std::bit_cast<std::uint64_t>(x);
}

// Doubles of every exponent, subnormals too.
std::vector<double> any_doubles(std::size_t count, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::vector<double> out;
  while (out.size() < count)
    if (const double x = std::bit_cast<double>(engine()); std::isfinite(x)) out.push_back(x);
  return out;
}

TEST(ExactSum, ASingleTermIsReturned) {
  for (double x : any_doubles(20000, 1)) {
    EXPECT_EQ(bits(sum_of({x}).round()), bits(x));
    EXPECT_EQ(bits(sum_of({std::ldexp(x, -1000) * 0x1p-60}).round()), bits(std::ldexp(x, -1000) * 0x1p-60 + 0.0));
  }
  for (const double x : {0.0, 1.0, -1.0, kTiny, -kTiny, kMax, -kMax, 0x1p-1022, 0x1p-1022 - kTiny})
    EXPECT_EQ(bits(sum_of({x}).round()), bits(x)) << x;
  EXPECT_EQ(bits(sum_of({-0.0}).round()), bits(0.0)) << "zero has a single form";
}

// For two terms, the processor's addition is rounded correctly. For three, so is that of fp80 or fp128 if exponents are
// close.
TEST(ExactSum, TwoTermsRoundAsTheProcessor) {
  const auto x = any_doubles(40000, 2);
  std::mt19937_64 engine(3);
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    EXPECT_EQ(bits(sum_of({x[i], x[i + 1]}).round()), bits(x[i] + x[i + 1]));
    // Exponents are close, so that bits overlap, and sums are often halfway between two doubles.
    const int e = static_cast<int>(engine() % 120) - 60;
    double near = std::ldexp(static_cast<double>(engine() % 8 + 1), std::clamp(std::ilogb(x[i]) + e, -1074, 1020));
    if (i % 2) near = -near;
    EXPECT_EQ(bits(sum_of({x[i], near}).round()), bits(x[i] + near)) << x[i] << " + " << near;
  }
}

TEST(ExactSum, ManyTermsAgainstWideArithmetic) {
  std::mt19937_64 engine(4);
  for (int round = 0; round < 200; ++round) {
    // Multiples of 2^-60 below 2^30: 96-bit sums, exact in 128-bit integers.
    __int128 exact = 0;
    ExactSum sum;
    for (int i = 0; i < 300; ++i) {
      const auto mantissa = static_cast<std::int64_t>(engine() >> 11) * (engine() % 2 ? 1 : -1);
      const int shift = static_cast<int>(engine() % 37);
      exact += static_cast<__int128>(mantissa) << shift;
      sum.add(std::ldexp(static_cast<double>(mantissa), shift - 60));
    }
    // The conversion of a 128-bit integer rounds to nearest even.
    EXPECT_EQ(bits(sum.round()), bits(std::ldexp(static_cast<double>(exact), -60)));
  }
}

TEST(ExactSum, CancelledTermsKeepTheirSmallRest) {
  EXPECT_EQ(sum_of({kMax, 1.0, kTiny, -kMax, -1.0}).round(), kTiny);
  EXPECT_EQ(sum_of({1e300, 1.0, -1e300}).round(), 1.0);
  EXPECT_EQ(sum_of({-1e300, 0x1p-1000, 1e300, -0x1p-1000}).round(), 0.0);
  // Below half, halfway to even, and just above halfway because of a far smaller term.
  EXPECT_EQ(sum_of({1.0, 0x1p-53}).round(), 1.0);
  EXPECT_EQ(sum_of({1.0 + 0x1p-52, 0x1p-53}).round(), 1.0 + 0x1p-51);
  EXPECT_EQ(sum_of({1.0, 0x1p-53, kTiny}).round(), 1.0 + 0x1p-52);
  EXPECT_EQ(sum_of({-1.0, -0x1p-53, -kTiny}).round(), -1.0 - 0x1p-52);
  EXPECT_EQ(sum_of({1.0, 0x1p-53, -kTiny}).round(), 1.0);
}

TEST(ExactSum, OnlyTheFinalSumOverflows) {
  EXPECT_EQ(sum_of({kMax, kMax, -kMax}).round(), kMax);
  EXPECT_EQ(sum_of({kMax, kMax}).round(), kInf);
  EXPECT_EQ(sum_of({-kMax, -kMax}).round(), -kInf);
  ExactSum many = sum_of({kMax});
  for (int i = 0; i < 40; ++i) many.merge(ExactSum(many));  // 2^40 times the largest double
  EXPECT_EQ(many.round(), kInf);
  ExactSum less = sum_of({-kMax});
  for (int i = 0; i < 40; ++i) less.merge(ExactSum(less));
  EXPECT_EQ(less.round(), -kInf);
  less.merge(many);
  EXPECT_EQ(less.round(), 0.0);
}

TEST(ExactSum, AnyOrderAndGroupingGiveTheSameBits) {
  auto x = any_doubles(3000, 5);
  ExactSum reference = sum_of(x);
  reference.normalize();
  std::mt19937_64 engine(6);
  for (int trial = 0; trial < 20; ++trial) {
    std::shuffle(x.begin(), x.end(), engine);
    std::vector<ExactSum> groups(1 + engine() % 7);
    for (const double v : x) {
      ExactSum& group = groups[engine() % groups.size()];
      group.add(v);
      if (engine() % 100 == 0) group.normalize();
    }
    ExactSum total;
    for (const ExactSum& group : groups) total.merge(group);
    EXPECT_EQ(bits(total.round()), bits(reference.round()));
    total.normalize();
    EXPECT_EQ(total.chunks, reference.chunks);
  }
}

// Chunks hold 2^29 additions without a carry; `uncarried` triggers the normalisation.
TEST(ExactSum, CarriesBeforeChunksOverflow) {
  ExactSum s;
  s.add(0x1.fffffffffffffp60);
  for (int i = 0; i < 36; ++i) s.merge(ExactSum(s));  // 2^36 terms
  EXPECT_EQ(s.round(), 0x1.fffffffffffffp96);
  EXPECT_LE(s.uncarried, 1ull << 29);
}

TEST(ExactSum, CountsNonFiniteTerms) {
  ExactSum s = sum_of({1.0, kInf, std::nan(""), -kInf});
  EXPECT_EQ(s.nonfinite, 3u);
  EXPECT_TRUE(std::isnan(s.round()));
  ExactSum t = sum_of({2.0});
  t.merge(s);
  EXPECT_EQ(t.nonfinite, 3u);
  EXPECT_TRUE(std::isnan(t.round()));
}

}  // namespace
}  // namespace strata::device
