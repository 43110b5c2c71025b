#include "runtime/run/reports/run_reports.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using tests::ScratchFolder;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    out.push_back(text.substr(at, end - at));
  return out;
}

class RunReportsTest : public testing::Test {
 protected:
  Recipe recipe(std::vector<std::string> sets = {}) const {
    sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "training.max_steps=5", "optimizer.betas=[0.8, 0.9]",
                               "model.config.n_layer=2", "report.dir=" + (folder_.path() / "run").string()});
    return load_recipe({}, sets);
  }
  static StepReport step(std::int64_t number) {
    StepReport report{
        .step = number, .loss = 2.5, .grad_norm = 0.5, .learning_rate = 1e-3, .tokens = 1000, .step_ms = 100};
    report.time = 1700000000.25;
    report.epoch = 0.125;
    report.labels = 900;
    return report;
  }
  void run(std::int64_t from, std::int64_t to) const {
    RunReports reports(recipe(), from > 0 ? std::optional(KeptLines{from}) : std::nullopt);
    reports.event(from > 0 ? "resume" : "start", from, {{"ranks", "2"}});
    for (std::int64_t i = from + 1; i <= to; ++i) reports.step(step(i), Memory{});
    reports.close();
  }
  std::string read(const char* name) const { return folder_.read(std::string("run/") + name); }

  ScratchFolder folder_;
};

TEST_F(RunReportsTest, AFolderHoldsAllReportsUnderTheirUsualNames) {
  run(0, 1);
  EXPECT_EQ(read("report.jsonl"),
            "{\"step\":1,\"loss\":2.5,\"loss_hex\":\"0x1.4p+1\",\"grad_norm\":0.5,\"lr\":0.001,\"loss_scale\":1,"
            "\"skipped\":false,\"tokens\":1000,\"step_ms\":100.000,\"tokens_per_s\":10000.0,\"time\":1700000000.250,"
            "\"epoch\":0.125,\"labels\":900}\n");
  EXPECT_THAT(lines_of(read("report.csv")),
              ElementsAre("step,time,epoch,loss,grad_norm,learning_rate,loss_scale,skipped,tokens,labels,step_ms,"
                          "tokens_per_s,eval_loss,eval_tokens",
                          "1,1700000000.250,0.125,2.5,0.5,0.001,1,0,1000,900,100.000,10000.0,,"));
  EXPECT_TRUE(std::filesystem::is_directory(folder_.path() / "run/tensorboard"));
  EXPECT_THAT(read("events.jsonl"), HasSubstr("{\"step\":0,\"event\":\"start\",\"time\":"));
  const Recipe::Report named = recipe().report;
  EXPECT_EQ(named.summary, folder_.path() / "run/summary.json");
  EXPECT_EQ(named.trace, folder_.path() / "run/trace.json");
  EXPECT_EQ(recipe({"report.summary=/elsewhere"}).report.summary, "/elsewhere") << "an explicit name comes first";
}

TEST_F(RunReportsTest, TheFolderContainsTheRunsRecipe) {
  run(0, 1);
  const std::string text = read("recipe.toml");
  EXPECT_THAT(text, Not(HasSubstr("report.dir"))) << "running it again must not overwrite this report";
  EXPECT_EQ(to_text(load_recipe(folder_.path() / "run/recipe.toml", {})), to_text(recipe()));
}

TEST_F(RunReportsTest, AResumedRunIsOneRunInEveryReport) {
  run(0, 4);
  run(2, 3);
  EXPECT_EQ(lines_of(read("report.jsonl")).size(), 3u);
  const auto rows = lines_of(read("report.csv"));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_THAT(rows[0], HasSubstr("step,"));
  EXPECT_THAT(rows[3], testing::StartsWith("3,"));
  EXPECT_EQ(lines_of(read("events.jsonl")).size(), 2u) << "all of the starts";
  run(0, 1);
  EXPECT_EQ(lines_of(read("report.csv")).size(), 2u);
  EXPECT_EQ(lines_of(read("events.jsonl")).size(), 1u);
}

// The reports of a run that was stopped before the evaluation of its last step, made it after resuming, and was then
// killed.
TEST_F(RunReportsTest, ARepeatedEvaluationAppearsOnce) {
  const auto evaluate = [](RunReports& reports, std::int64_t step, double loss) {
    reports.evaluation({step, loss, 4096, 4, 100, true, 1700000001.5, {{"eval_accuracy", 0.5}}, {{"a", "b\n"}}});
  };
  {
    RunReports reports(recipe(), {});
    evaluate(reports, 0, 3);
    for (std::int64_t i = 1; i <= 2; ++i) reports.step(step(i), Memory{});
    evaluate(reports, 2, 2.5);
  }
  const std::string jsonl = read("report.jsonl"), csv = read("report.csv");
  {
    RunReports reports(recipe(), KeptLines{2, false});
    evaluate(reports, 2, 2.5);
  }
  EXPECT_EQ(read("report.jsonl"), jsonl);
  EXPECT_EQ(read("report.csv"), csv);
  {
    RunReports reports(recipe(), KeptLines{2, true});  // the evaluation was made before the checkpoint
    reports.step(step(3), Memory{});
  }
  EXPECT_EQ(read("report.jsonl"), jsonl + step_line(step(3)));
  {
    RunReports reports(recipe(), KeptLines{0, true});  // from a checkpoint before the first step
    reports.step(step(1), Memory{});
  }
  EXPECT_EQ(lines_of(read("report.jsonl")).size(), 3u) << read("report.jsonl");
}

TEST_F(RunReportsTest, OnlyOneRunWritesThemAtATime) {
  {
    const RunReports first(recipe(), {});
    EXPECT_FAILURE(RunReports(recipe(), {}), Exit::usage, testing::HasSubstr("another run writes"));
    // Two runs would write to any one of them.
    for (const char* name : {"report.jsonl", "report.csv", "summary.json"}) {
      Recipe other;
      const auto path = folder_.path() / "run" / name;
      (std::string_view(name) == "report.jsonl" ? other.report.jsonl
       : std::string_view(name) == "report.csv" ? other.report.csv
                                                : other.report.summary) = path;
      EXPECT_FAILURE(RunReports(other, {}), Exit::usage, testing::HasSubstr(path.string() + " is in use"));
    }
  }
  EXPECT_NO_THROW(RunReports(recipe(), {}));
}

// Another user who may write there planted links. Their targets must not change.
TEST_F(RunReportsTest, NoReportIsWrittenThroughALink) {
  const auto mine = folder_.write("mine", "precious");
  for (const char* name : {"recipe.toml", "events.jsonl", "report.jsonl", "report.csv", "summary.json"}) {
    SCOPED_TRACE(name);
    std::filesystem::remove_all(folder_.path() / "run");
    std::filesystem::create_directory(folder_.path() / "run");
    std::filesystem::create_symlink(mine, folder_.path() / "run" / name);
    try {
      RunReports reports(recipe(), {});
      reports.event("start", 0);
      reports.step(step(1), Memory{});
      if (reports.summary) reports.summary->write("{}");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::usage);
      EXPECT_THAT(error.what(), testing::HasSubstr("symbolic link"));
    }
    EXPECT_EQ(folder_.read("mine"), "precious");
  }
}

TEST_F(RunReportsTest, AnEvaluationHasItsOwnLine) {
  {
    RunReports reports(recipe(), {});
    reports.step(step(1), Memory{});
    reports.evaluation({1, 2.25, 4096, 4, 100, true, 1700000001.5, {{"eval_accuracy", 0.5}}, {{"a", "b\n"}}});
    reports.close();
  }
  EXPECT_EQ(lines_of(read("report.jsonl"))[1],
            "{\"step\":1,\"eval_loss\":2.25,\"eval_loss_hex\":\"0x1.2p+1\",\"eval_accuracy\":0.5,\"eval_tokens\":4096,"
            "\"eval_sequences\":4,\"eval_tokens_per_s\":100.0,\"best\":true,\"time\":1700000001.500}");
  EXPECT_EQ(lines_of(read("report.jsonl"))[2], "{\"step\":1,\"prompt\":\"a\",\"completion\":\"b\\u000a\"}");
  EXPECT_EQ(lines_of(read("report.csv"))[2], "1,1700000001.500,,,,,,,,,,,2.25,4096");
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "run/tensorboard"))
    events += folder_.read("run/tensorboard/" + entry.path().filename().string());
  EXPECT_THAT(events, HasSubstr("eval/loss"));
  EXPECT_THAT(events, HasSubstr("eval/accuracy"));
  run(1, 2);
  EXPECT_EQ(lines_of(read("report.jsonl")).size(), 4u) << "an evaluation after the step from which a run resumes stays";
}

TEST_F(RunReportsTest, NonFiniteValuesAreNullOrEmpty) {
  {
    RunReports reports(recipe(), {});
    StepReport report = step(1);
    report.loss = std::numeric_limits<double>::quiet_NaN();
    reports.step(report, Memory{});
    reports.close();
  }
  EXPECT_THAT(read("report.jsonl"), HasSubstr("\"loss\":null,\"loss_hex\":null,"));
  EXPECT_THAT(read("report.csv"), HasSubstr("1,1700000000.250,0.125,,0.5,"));
}

}  // namespace
}  // namespace strata::runtime
