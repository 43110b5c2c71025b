#include "runtime/run/metrics/class_metrics.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>
#include <string>

namespace strata::runtime {
namespace {

using simdjson::dom::element;

// Ours add up in another order than numpy does.
constexpr double kClose = 1e-12;

template <typename T>
std::vector<T> numbers(const element& list) {
  std::vector<T> out;
  for (const element x : list.get_array()) out.push_back(static_cast<T>(x.get_double().value()));
  return out;
}
ClassScores scores_of(const element& golden) {
  return {golden["classes"].get_uint64().value(), numbers<float>(golden["scores"]),
          numbers<std::int32_t>(golden["labels"])};
}
void expect_quality(const ClassQuality& found, const element& golden) {
  const auto wanted = numbers<double>(golden);
  EXPECT_NEAR(found.precision, wanted[0], kClose);
  EXPECT_NEAR(found.recall, wanted[1], kClose);
  EXPECT_NEAR(found.f1, wanted[2], kClose);
}

// Values made by scikit-learn (tests/golden/make_metrics.py).
TEST(ClassMetricsTest, ScikitLearnsNumbers) {
  simdjson::dom::parser parser;
  const element root = parser.load(std::string(STRATA_SOURCE_DIR) + "/tests/golden/metrics/metrics.json").value();
  std::size_t n = 0;
  for (const element golden : root.get_array()) {
    SCOPED_TRACE(n++);
    const std::string_view kind = golden["kind"].get_string().value();
    if (kind == "numbers") {
      const auto found = metrics_of_numbers(numbers<float>(golden["predictions"]), numbers<float>(golden["labels"]));
      EXPECT_NEAR(found.mean_squared_error, golden["mean_squared_error"].get_double().value(), kClose);
      EXPECT_NEAR(found.mean_absolute_error, golden["mean_absolute_error"].get_double().value(), kClose);
      EXPECT_NEAR(found.pearson.value(), golden["pearson"].get_double().value(), kClose);
      continue;
    }
    const ClassMetrics found = kind == "one" ? metrics_of_one(scores_of(golden)) : metrics_of_many(scores_of(golden));
    EXPECT_NEAR(found.accuracy, golden["accuracy"].get_double().value(), kClose);
    // Of a class without texts there is no curve.
    EXPECT_EQ(found.roc_auc.has_value(), !golden["roc_auc"].is_null());
    if (found.roc_auc) {
      EXPECT_NEAR(*found.roc_auc, golden["roc_auc"].get_double().value(), kClose);
    }
    expect_quality(found.macro, golden["macro"]);
    expect_quality(found.micro, golden["micro"]);
    const auto support = numbers<std::uint64_t>(golden["support"]);
    std::size_t c = 0;
    for (const element of_class : golden["per_class"].get_array()) {
      expect_quality(found.classes[c], of_class);
      EXPECT_EQ(found.classes[c].support, support[c]);
      ++c;
    }
    EXPECT_EQ(c, found.classes.size());
    EXPECT_EQ(found.matthews.has_value(), kind == "one");
    if (kind != "one") continue;
    EXPECT_NEAR(*found.matthews, golden["matthews"].get_double().value(), kClose);
    std::size_t row = 0;
    for (const element of_row : golden["confusion"].get_array())
      EXPECT_EQ(found.confusion[row++], numbers<std::uint64_t>(of_row));
  }
  EXPECT_EQ(n, 6u);
}

TEST(ClassMetricsTest, AveragesLeaveOutClassesThatNoDocumentIsOf) {
  // Class 1 is neither there nor said; class 2 is said, and counts.
  const ClassMetrics found = metrics_of_one({3, {1, 0, 0, 0, 0, 1}, {0, 0}});
  EXPECT_EQ(found.unseen, std::vector<std::size_t>{1});
  EXPECT_EQ(found.macro.precision, 0.5);
  EXPECT_EQ(found.macro.recall, 0.25);
  // scikit-learn averages over all columns of indicators.
  const ClassMetrics many = metrics_of_many({2, {1, -1}, {0b01}});
  EXPECT_TRUE(many.unseen.empty());
  EXPECT_EQ(many.macro.f1, 0.5);
}

TEST(ClassMetricsTest, OneClassOnlyHasNoCurve) {
  const ClassMetrics found = metrics_of_one({2, {0, 1, 2, 1}, {1, 1}});
  EXPECT_FALSE(found.roc_auc);
  EXPECT_EQ(found.without_curve, 1u);
  EXPECT_EQ(found.accuracy, 0.5);
  const ClassMetrics many = metrics_of_many({3, {0, 0, 0, 1, 1, 1}, {0b001, 0b100}});
  EXPECT_FALSE(many.roc_auc);
  EXPECT_EQ(many.without_curve, 1u);
  EXPECT_FALSE(metrics_of_numbers(std::vector<float>{1, 2}, std::vector<float>{3, 3}).pearson);
}

TEST(ClassMetricsTest, EqualScoresCountHalf) {
  EXPECT_EQ(area_under_curve(std::vector<double>{1, 1, 1}, {true, false, false}), 0.5);
  EXPECT_EQ(area_under_curve(std::vector<double>{1, 2, 2, 3}, {false, true, false, true}), 3.5 / 4);
  // Beyond what a float's exponent holds the probability is 1, and the order is still known.
  EXPECT_EQ(metrics_of_one({2, {0, 200, 0, 300}, {0, 1}}).roc_auc, 1.0);
}

}  // namespace
}  // namespace strata::runtime
