#include "runtime/run/metrics/score_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "comm/communicator.h"
#include "runtime/recipe/evaluation_metric.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

ClassReport report_of(const models::Classes& classes, const std::vector<float>& scores,
                      const std::vector<std::int32_t>& labels) {
  ClassReport out;
  comm::run_threads(1, [&](comm::World& world) {
    ScoreCollector collector(classes);
    collector.add_round(scores, classes.names.size(), labels);
    out = collector.report(world);
  });
  return out;
}

// evaluation.metric may name what is reported, all of it and nothing else; eval_loss is the evaluator's own.
void expect_metrics_of(const ClassReport& report, Judged judged) {
  std::vector<std::string> reported = {"eval_loss"};
  for (const auto& [name, value] : report.metrics) reported.push_back(name);
  EXPECT_THAT(reported, UnorderedElementsAreArray(metric_names(judged)));
}

TEST(ScoreCollectorTest, ReportsWhatTheTableOfMetricsNames) {
  const std::vector<std::string> ab = {"a", "b"};
  expect_metrics_of(report_of({ab, true, device::ClassTarget::one}, {1, 0, 0, 1}, {0, 1}), Judged::one_class);
  expect_metrics_of(report_of({ab, true, device::ClassTarget::many}, {1, -1, -1, 1}, {0b01, 0b10}),
                    Judged::many_classes);
  expect_metrics_of(report_of({{"n"}, true, device::ClassTarget::number}, {1, 2},
                              {std::bit_cast<std::int32_t>(1.0F), std::bit_cast<std::int32_t>(3.0F)}),
                    Judged::number);
}

TEST(ScoreCollectorTest, ErrorsAreTheBetterTheSmaller) {
  for (const char* name : {"eval_loss", "eval_perplexity", "eval_mse", "eval_mae"})
    EXPECT_FALSE(metric_named(name).greater_is_better) << name;
  for (const char* name : {"eval_f1", "eval_precision_micro", "eval_matthews", "eval_pearson"})
    EXPECT_TRUE(metric_named(name).greater_is_better) << name;
}

TEST(ScoreCollectorTest, NamesClassesThatAveragesLeaveOut) {
  const auto report = report_of({{"a", "b", "c"}, true, device::ClassTarget::one}, {1, 0, 0, 0, 0, 1}, {0, 2});
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("eval_roc_auc is not computed"),
                                        HasSubstr("leave out a class that no text is of, nor was said to be of: b")));
}

}  // namespace
}  // namespace strata::runtime
