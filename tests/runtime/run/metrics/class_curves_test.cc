#include <gtest/gtest.h>

#include <cmath>

#include "runtime/run/metrics/class_metrics.h"

namespace strata::runtime {
namespace {

std::optional<double> area(std::vector<double> positive, std::vector<double> negative) {
  return area_under_curve(positive, negative);
}

TEST(ClassCurvesTest, EqualScoresCountHalf) {
  EXPECT_EQ(area({1}, {1, 1}), 0.5);
  EXPECT_EQ(area({3, 2}, {2, 1}), 3.5 / 4);
  EXPECT_EQ(area({1, 2}, {3, 4, 5}), 0.0);
  EXPECT_FALSE(area({}, {1}));
  EXPECT_FALSE(area({1}, {}));
}

TEST(ClassCurvesTest, LogOddsKnowTheOrderBeyondAProbabilityOfOne) {
  std::vector<double> a(2), b(2);
  log_odds(std::vector<float>{0, 200}, a);
  log_odds(std::vector<float>{0, 300}, b);
  EXPECT_EQ(a[1], 200.0);
  EXPECT_EQ(b[1], 300.0);
  std::vector<double> three(3);
  log_odds(std::vector<float>{1, 2, 4}, three);
  const double e[] = {std::exp(1.0), std::exp(2.0), std::exp(4.0)};
  for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(three[c], std::log(e[c] / (e[0] + e[1] + e[2] - e[c])), 1e-14) << c;
}

// Columns of classes 1 and 4 of five, with room for more rows than there are.
TEST(ClassCurvesTest, HasTheColumnsOfItsOwnClasses) {
  std::vector<double> columns(2 * 6);
  std::vector<std::uint32_t> labels(6);
  ClassCurves curves(columns, labels, 1, 3, 5, false);
  const std::uint32_t of[] = {1, 4, 1, 0};
  const double one[] = {5, 1, 2, 2}, four[] = {0, 9, 1, 2};
  for (int again = 0; again < 2; ++again) {
    curves.clear();
    for (std::size_t i = 0; i < 4; ++i) curves.add({&of[i], 1}, std::vector<double>{7, one[i], 8, 7, four[i]});
    const auto areas = curves.areas();
    ASSERT_EQ(areas.size(), 2u);
    EXPECT_EQ(areas[0], 3.5 / 4);
    EXPECT_EQ(areas[1], 1.0);
  }
  std::vector<double> none;
  EXPECT_TRUE(ClassCurves(none, labels, 5, 3, 5, false).areas().empty()) << "more ranks than classes";
}

}  // namespace
}  // namespace strata::runtime
