#include "runtime/run/metrics/class_metrics.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

using simdjson::dom::element;

// The order of sums differs from numpy's.
constexpr double kClose = 1e-12;

template <typename T>
std::vector<T> numbers(const element& list) {
  std::vector<T> out;
  for (const element x : list.get_array()) out.push_back(static_cast<T>(x.get_double().value()));
  return out;
}
// A model's scores of documents, and their labels. Scores are logits, [documents, classes].
struct ClassScores {
  std::size_t classes;
  std::vector<float> scores;
  std::vector<std::uint32_t> labels;  // of one class each; or, of many, words whose bits are the classes
  std::size_t words = 1;              // of a label

  std::size_t documents() const { return labels.size() / words; }
  std::span<const std::uint32_t> label(std::size_t document) const {
    return std::span(labels).subspan(document * words, words);
  }
  std::span<const float> of(std::size_t document) const {
    return std::span(scores).subspan(document * classes, classes);
  }
};
ClassScores scores_of(const element& golden) {
  const auto classes = static_cast<std::size_t>(golden["classes"].get_uint64().value());
  const std::size_t words = golden["kind"].get_string().value() == "many" ? (classes + 31) / 32 : 1;
  return {classes, numbers<float>(golden["scores"]), numbers<std::uint32_t>(golden["labels"]), words};
}
ClassMetrics metrics_of_one(const ClassScores& all, ClassTally::Confusion confusion = ClassTally::Confusion::counted) {
  ClassTally tally(all.classes, confusion);
  for (std::size_t i = 0; i < all.labels.size(); ++i) tally.add_one(all.labels[i], best_of(all.of(i)));
  return tally.of_one();
}
ClassMetrics metrics_of_many(const ClassScores& all) {
  ClassTally tally(all.classes, ClassTally::Confusion::left_out);
  std::vector<std::uint32_t> said(all.words);
  for (std::size_t i = 0; i < all.documents(); ++i) {
    all_of(all.of(i), said);
    tally.add_many(all.label(i), said);
  }
  return tally.of_many();
}
// The mean over classes. For two classes with one per document, the area of the second.
std::optional<double> area_of(const ClassScores& all, bool many) {
  const std::size_t rows = all.documents(), first = !many && all.classes == 2 ? 1 : 0;
  std::vector<double> columns(all.classes * rows), scores(all.classes);
  std::vector<std::uint32_t> labels(rows * all.words);
  ClassCurves curves(columns, labels, first, 1, all.classes, many);
  for (std::size_t i = 0; i < rows; ++i) {
    if (many)
      std::ranges::copy(all.of(i), scores.begin());
    else
      log_odds(all.of(i), scores);
    curves.add(all.label(i), scores);
  }
  double sum = 0;
  const auto areas = curves.areas();
  for (const auto& area : areas) {
    if (!area) return std::nullopt;
    sum += *area;
  }
  return sum / static_cast<double>(areas.size());
}
void expect_quality(const ClassQuality& found, const element& golden) {
  const auto wanted = numbers<double>(golden);
  EXPECT_NEAR(found.precision, wanted[0], kClose);
  EXPECT_NEAR(found.recall, wanted[1], kClose);
  EXPECT_NEAR(found.f1, wanted[2], kClose);
}

// Values made by scikit-learn (tests/golden/make_metrics.py).
TEST(ClassMetricsTest, MatchesScikitLearn) {
  simdjson::dom::parser parser;
  const element root = parser.load((tests::source_dir() / "tests/golden/metrics/metrics.json").string()).value();
  std::size_t n = 0;
  for (const element golden : root["cases"].get_array()) {
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
    // A class without texts has no curve.
    const auto area = area_of(scores_of(golden), kind == "many");
    EXPECT_EQ(area.has_value(), !golden["roc_auc"].is_null());
    if (area) {
      EXPECT_NEAR(*area, golden["roc_auc"].get_double().value(), kClose);
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
  EXPECT_EQ(n, 7u);
}

TEST(ClassMetricsTest, AveragesOmitClassesWithoutDocuments) {
  // Class 1 neither occurs nor is predicted. Class 2 is predicted, so it counts.
  const ClassMetrics found = metrics_of_one({3, {1, 0, 0, 0, 0, 1}, {0, 0}});
  EXPECT_EQ(found.unseen, std::vector<std::size_t>{1});
  EXPECT_EQ(found.macro.precision, 0.5);
  EXPECT_EQ(found.macro.recall, 0.25);
  // scikit-learn averages over all columns of indicators.
  const ClassMetrics many = metrics_of_many({2, {1, -1}, {0b01}});
  EXPECT_TRUE(many.unseen.empty());
  EXPECT_EQ(many.macro.f1, 0.5);
}

TEST(ClassMetricsTest, ASingleClassHasNoCurve) {
  EXPECT_FALSE(area_of({2, {0, 1, 2, 1}, {1, 1}}, false));
  EXPECT_EQ(metrics_of_one({2, {0, 1, 2, 1}, {1, 1}}).accuracy, 0.5);
  EXPECT_FALSE(area_of({3, {0, 0, 0, 1, 1, 1}, {0b001, 0b100}}, true));
  EXPECT_FALSE(metrics_of_numbers(std::vector<float>{1, 2}, std::vector<float>{3, 3}).pearson);
}

// Everything except the matrix is computed from counts per class.
TEST(ClassMetricsTest, OmittingTheMatrixChangesNoNumber) {
  const ClassScores all{3, {1, 0, 0, 0, 1, 0, 0, 0, 1, 3, 1, 2}, {0, 1, 1, 2}};
  const ClassMetrics with = metrics_of_one(all), without = metrics_of_one(all, ClassTally::Confusion::left_out);
  EXPECT_EQ(with.confusion.size(), 3u);
  EXPECT_TRUE(without.confusion.empty());
  EXPECT_EQ(without.matthews, with.matthews);
  EXPECT_EQ(without.macro.f1, with.macro.f1);
  EXPECT_EQ(without.classes[1].recall, 0.5);
}

TEST(ClassMetricsTest, ATallyCanBeReset) {
  ClassTally tally(2, ClassTally::Confusion::counted);
  tally.add_one(0, 1);
  tally.clear();
  tally.add_one(1, 1);
  EXPECT_EQ(tally.of_one().accuracy, 1.0);
  EXPECT_EQ(tally.of_one().confusion, (std::vector<std::vector<std::uint64_t>>{{0, 0}, {0, 1}}));
  EXPECT_EQ(tally.of_one().classes[0].support, 0u);
}

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

TEST(ClassCurvesTest, LogOddsKeepTheOrderOfSaturatedProbabilities) {
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

std::vector<std::string> texts(const element& list) {
  std::vector<std::string> out;
  for (const element text : list.get_array()) out.emplace_back(text.get_string().value());
  return out;
}
std::vector<std::size_t> places(const element& tags, const std::vector<std::string>& names) {
  std::vector<std::size_t> out;
  for (const std::string& tag : texts(tags))
    out.push_back(static_cast<std::size_t>(std::ranges::find(names, tag) - names.begin()));
  return out;
}

// Values made by seqeval (tests/golden/make_entities.py).
TEST(EntityMetricsTest, MatchesSeqeval) {
  simdjson::dom::parser parser;
  const element root = parser.load((tests::source_dir() / "tests/golden/metrics/entities.json").string()).value();
  std::size_t n = 0, found = 0;
  for (const element golden : root["cases"].get_array()) {
    SCOPED_TRACE(n++);
    const std::vector<std::string> names = texts(golden["names"]);
    const EntityTags tags(names);
    EntityTally tally(names);
    for (std::size_t i = 0; i < golden["there"].get_array().size(); ++i) {
      const auto there = places(golden["there"].at(i), names);
      tally.add(there, places(golden["said"].at(i), names));
      const std::vector<Entity> entities = tags.entities(there);
      ASSERT_EQ(entities.size(), golden["entities"].at(i).get_array().size()) << i;
      for (std::size_t e = 0; e < entities.size(); ++e, ++found) {
        const element wanted = golden["entities"].at(i).at(e);
        EXPECT_EQ(entities[e].begin, wanted.at(1).get_uint64().value()) << i;
        EXPECT_EQ(entities[e].end, wanted.at(2).get_uint64().value()) << i;
        // The type of its first word, after "B-" or "I-".
        EXPECT_EQ(names[there[entities[e].begin]].substr(2), wanted.at(0).get_string().value()) << i;
      }
    }
    // The quotients have the same integers, but seqeval computes F1 from rounded values.
    const ClassQuality quality = tally.counts().quality();
    EXPECT_EQ(quality.precision, golden["precision"].get_double().value());
    EXPECT_EQ(quality.recall, golden["recall"].get_double().value());
    EXPECT_NEAR(quality.f1, golden["f1"].get_double().value(), 1e-15);
  }
  EXPECT_EQ(n, 7u);
  EXPECT_GT(found, 200u);
}

}  // namespace
}  // namespace strata::runtime
