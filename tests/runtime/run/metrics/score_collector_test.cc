#include "runtime/run/metrics/score_collector.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "comm/communicator.h"
#include "device/ops/losses/losses.h"
#include "runtime/recipe/evaluation_metric.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/run/metrics/rank_exchange.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

// The rows of a micro-batch: one sequence with the given documents.
struct MicroBatch {
  std::vector<float> scores;
  std::vector<std::int32_t> labels;
  std::vector<device::RowRange> documents = {};
  std::vector<std::uint32_t> sets = {};  // of classes, for each label
};

// The report, which is the same on every rank. Each round has a micro-batch of each rank.
ClassReport report_of(const models::Classes& classes, const std::vector<MicroBatch>& all, int ranks, bool words = false,
                      std::uint64_t rows = 1000) {
  std::vector<ClassReport> out(static_cast<std::size_t>(ranks));
  comm::run_threads(ranks, [&](comm::World& world) {
    std::size_t most = 1;
    for (const MicroBatch& one : all) most = std::max(most, one.labels.size());
    const ScoreMemory layout(classes, rows, ranks, most);
    RankExchange exchange(world, layout.chunk_bytes);
    std::vector<double> kept((layout.bytes + 7) / 8);
    ScoreCollector collector(classes, words, layout, std::as_writable_bytes(std::span(kept)).first(layout.bytes),
                             exchange.exchange(), world.rank(), ranks);
    const auto w = static_cast<std::size_t>(ranks), rank = static_cast<std::size_t>(world.rank());
    // The second evaluation is not affected by the first.
    for (int evaluation = 0; evaluation < 2; ++evaluation) {
      collector.clear();
      for (std::size_t at = 0; at < all.size(); at += w) {
        static const MicroBatch kNothing;
        const MicroBatch& own = at + rank < all.size() ? all[at + rank] : kNothing;
        collector.add_round(own.scores, classes.names.size(), own.labels, own.sets, own.documents, own.labels.size());
      }
      out[rank] = collector.report(world);
    }
  });
  for (const ClassReport& report : out) {
    EXPECT_EQ(report.metrics, out[0].metrics);
    EXPECT_EQ(report.confusion, out[0].confusion);
    EXPECT_EQ(report.notes, out[0].notes);
  }
  return out[0];
}
ClassReport report_of(const models::Classes& classes, const std::vector<float>& scores,
                      const std::vector<std::int32_t>& labels) {
  return report_of(classes, {{scores, labels}}, 1);
}
models::Classes classes_of(std::size_t count, device::ClassTarget target) {
  models::Classes out;
  for (std::size_t i = 0; i < count; ++i) out.names.push_back(fmt::format("c{}", i));
  out.target = target;
  return out;
}
// There are eleven micro-batches of up to seven rows, some of which do not count.
std::vector<MicroBatch> some_rows(std::size_t classes, device::ClassTarget target) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<MicroBatch> out;
  for (std::size_t m = 0; m < 11; ++m) {
    MicroBatch& one = out.emplace_back();
    for (std::size_t row = 0; row < 2 + m % 6; ++row) {
      for (std::size_t c = 0; c < classes; ++c) one.scores.push_back(std::round(normal(random) * 10) / 10);
      const std::size_t words = device::class_set_words(target, classes);
      for (std::size_t w = 0; w < words; ++w)
        one.sets.push_back(static_cast<std::uint32_t>(random()) &
                           (w + 1 < words || classes % 32 == 0 ? ~0u : (1u << classes % 32) - 1));
      if (words > 0)
        one.labels.push_back(0);
      else if (target == device::ClassTarget::number)
        one.labels.push_back(std::bit_cast<std::int32_t>(one.scores.back() + normal(random)));
      else
        one.labels.push_back(static_cast<std::int32_t>(
            random() % (target == device::ClassTarget::many ? 1u << classes : static_cast<unsigned>(classes))));
    }
    one.labels[m % 2] = device::kIgnoredLabel;
  }
  return out;
}

TEST(ScoreCollectorTest, MetricsHaveTheSameBitsOnAnyNumberOfRanks) {
  using device::ClassTarget;
  for (const auto& [classes, target] : {std::pair{2u, ClassTarget::one},
                                        {5u, ClassTarget::one},
                                        {4u, ClassTarget::many},
                                        {90u, ClassTarget::many},
                                        {1u, ClassTarget::number}}) {
    const auto rows = some_rows(classes, target);
    const ClassReport one = report_of(classes_of(classes, target), rows, 1);
    EXPECT_GE(one.metrics.size(), 3u);
    for (const int ranks : {2, 3, 7}) {
      const ClassReport more = report_of(classes_of(classes, target), rows, ranks);
      EXPECT_EQ(more.metrics, one.metrics) << classes << " classes, " << ranks << " ranks";
      EXPECT_EQ(more.confusion, one.confusion);
      EXPECT_EQ(more.notes, one.notes);
    }
  }
}

TEST(ScoreCollectorTest, OmitsTheMatrixOfTooManyClassesWithANote) {
  const std::size_t k = kMaxTabled + 1;
  const auto rows = some_rows(k, device::ClassTarget::one);
  const ClassReport found = report_of(classes_of(k, device::ClassTarget::one), rows, 1);
  EXPECT_TRUE(found.confusion.empty());
  EXPECT_THAT(found.notes,
              testing::Contains(AllOf(HasSubstr("the confusion matrix and eval_roc_auc are left out"),
                                      HasSubstr("1025 classes"), HasSubstr("they are computed for at most 1024"))));
  EXPECT_EQ(found.classes.size(), k);
  std::uint64_t there = 0, right = 0;
  for (const MicroBatch& one : rows)
    for (std::size_t row = 0; row < one.labels.size(); ++row) {
      if (one.labels[row] == device::kIgnoredLabel) continue;
      ++there;
      right += best_of(std::span(one.scores).subspan(row * k, k)) == static_cast<std::size_t>(one.labels[row]) ? 1 : 0;
    }
  const auto value = [&](const char* name) {
    const auto at = std::ranges::find(found.metrics, name, &std::pair<std::string, double>::first);
    return at == found.metrics.end() ? std::nan("") : at->second;
  };
  EXPECT_EQ(value("eval_accuracy"), static_cast<double>(right) / static_cast<double>(there));
  EXPECT_EQ(value("eval_f1_micro"), value("eval_accuracy"));
  EXPECT_TRUE(std::isnan(value("eval_roc_auc")));
  EXPECT_EQ(report_of(classes_of(k, device::ClassTarget::one), rows, 3).metrics, found.metrics);
}

// Any number of classes per text, more than a label's bits can hold, with scores and with predictions only.
TEST(ScoreCollectorTest, CountsSetsOfClasses) {
  for (const std::size_t k : {std::size_t{90}, kMaxTabled + 1}) {
    const auto rows = some_rows(k, device::ClassTarget::many);
    const std::size_t words = (k + 31) / 32;
    double there = 0, said = 0, found = 0;
    for (const MicroBatch& one : rows)
      for (std::size_t row = 0; row < one.labels.size(); ++row)
        for (std::size_t c = 0; c < k && one.labels[row] != device::kIgnoredLabel; ++c) {
          const bool is = (one.sets[row * words + c / 32] >> c % 32 & 1) != 0, is_said = one.scores[row * k + c] >= 0;
          there += is ? 1 : 0;
          said += is_said ? 1 : 0;
          found += is && is_said ? 1 : 0;
        }
    for (const int ranks : {1, 3})
      EXPECT_THAT(report_of(classes_of(k, device::ClassTarget::many), rows, ranks).metrics,
                  testing::Contains(testing::Pair("eval_f1_micro", 2 * found / (there + said))))
          << k << " classes, " << ranks << " ranks";
    const std::vector<std::string> notes = report_of(classes_of(k, device::ClassTarget::many), rows, 1).notes;
    if (k <= kMaxTabled)
      EXPECT_THAT(notes, testing::IsEmpty());
    else
      EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("eval_roc_auc is left out: the model has 1025 classes"),
                                           HasSubstr("it is computed for at most 1024"))));
  }
}

// One text has B-PER I-PER, and the next begins with I-PER. The model finds the first entity and misses the second.
TEST(ScoreCollectorTest, EntitiesEndWithTheirTexts) {
  models::Classes classes;
  classes.names = {"O", "B-PER", "I-PER"};
  const auto said = [](std::initializer_list<int> tags) {
    std::vector<float> scores;
    for (const int tag : tags)
      for (int c = 0; c < 3; ++c) scores.push_back(c == tag ? 1.0f : 0.0f);
    return scores;
  };
  const std::int32_t none = device::kIgnoredLabel;
  const std::vector<MicroBatch> rows = {
      {said({0, 1, 0, 2, 0, 0}), {none, 1, none, 2, 2, none}, {{0, 4}, {0, 4}, {0, 4}, {0, 4}, {4, 6}, {4, 6}}},
      {said({1, 2}), {1, 2}, {{0, 2}, {0, 2}}}};
  for (const int ranks : {1, 2, 3}) {
    const ClassReport found = report_of(classes, rows, ranks, true);
    EXPECT_THAT(found.metrics, testing::Contains(testing::Pair("eval_overall_precision", 1.0)));
    EXPECT_THAT(found.metrics, testing::Contains(testing::Pair("eval_overall_recall", 2.0 / 3)));
    EXPECT_THAT(found.metrics, testing::Contains(testing::Pair("eval_overall_f1", 0.8)));
  }
  EXPECT_THAT(report_of(classes, rows, 1, false).metrics,
              testing::Not(testing::Contains(testing::Pair("eval_overall_f1", testing::_))))
      << "of texts";
}

// evaluation.metric may name what is reported, all of it and nothing else; eval_loss is the evaluator's own.
void expect_metrics_of(const ClassReport& report, PredictionKind predictions) {
  std::vector<std::string> reported = {"eval_loss"};
  for (const auto& [name, value] : report.metrics) reported.push_back(name);
  EXPECT_THAT(reported, UnorderedElementsAreArray(metric_names(predictions)));
}

TEST(ScoreCollectorTest, ReportsTheMetricsOfTheTable) {
  const std::vector<std::string> ab = {"a", "b"};
  expect_metrics_of(report_of({ab, true, device::ClassTarget::one}, {1, 0, 0, 1}, {0, 1}), PredictionKind::one_class);
  expect_metrics_of(report_of({ab, true, device::ClassTarget::many}, {1, -1, -1, 1}, {0b01, 0b10}),
                    PredictionKind::many_classes);
  models::Classes tags;
  tags.names = {"O", "B-x", "I-x"};
  expect_metrics_of(report_of(tags, {{{1, 0, 0, 0, 1, 0, 0, 0, 1}, {0, 1, 2}, {{0, 3}, {0, 3}, {0, 3}}}}, 1, true),
                    PredictionKind::entities);
  expect_metrics_of(report_of({{"n"}, true, device::ClassTarget::number}, {1, 2},
                              {std::bit_cast<std::int32_t>(1.0F), std::bit_cast<std::int32_t>(3.0F)}),
                    PredictionKind::number);
}

TEST(ScoreCollectorTest, SmallerErrorsAreBetter) {
  for (const char* name : {"eval_loss", "eval_perplexity", "eval_mse", "eval_mae"})
    EXPECT_FALSE(metric_named(name).greater_is_better) << name;
  for (const char* name : {"eval_f1", "eval_precision_micro", "eval_matthews", "eval_pearson"})
    EXPECT_TRUE(metric_named(name).greater_is_better) << name;
}

TEST(ScoreCollectorTest, NamesClassesThatAveragesOmit) {
  const auto report = report_of({{"a", "b", "c"}, true, device::ClassTarget::one}, {1, 0, 0, 0, 0, 1}, {0, 2});
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("leave out a class without a text or a prediction: b"),
                                        HasSubstr("eval_roc_auc is not computed")));
}

}  // namespace
}  // namespace strata::runtime
