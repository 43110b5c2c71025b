#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/report/report.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using simdjson::dom::element;
using testing::HasSubstr;
using testing::Not;

std::string step_line(int step, double loss, bool skipped = false) {
  return fmt::format(
      "{{\"step\":{},\"loss\":{},\"loss_hex\":\"0x1p+0\",\"grad_norm\":1,\"lr\":0.1,\"loss_scale\":8,\"skipped\":{},"
      "\"tokens\":1,\"step_ms\":1.0,\"tokens_per_s\":1.0,\"time\":{},\"epoch\":0.5,\"labels\":1}}\n",
      step, loss, skipped, 1000 + step);
}

// The parts of a run's summary that the page shows.
std::string summary_of(int exposed_step) {
  const std::string tier = R"({"planned_peak_bytes":1,"measured_peak_bytes":1,"by_kind":{},"planned_by_kind":{}})";
  return fmt::format("{{\"memory\":{{\"device\":{}}},\"exposed_step\":{}}}\n", tier, exposed_step);
}

class RunData : public testing::Test {
 protected:
  element data(std::size_t most = 4000) {
    json_ = run_data(files_of_run(folder_.path()), most);
    return parser_.parse(json_);
  }
  runtime::Job job(int ranks = 2) const {
    const std::vector<std::string> sets = {"model.preset=tiny-gpt2", "model.config.n_layer=2", "data.seq_len=16",
                                           "zero.stage=3", "device.kind=cpu"};
    const runtime::Recipe recipe = runtime::load_recipe({}, sets);
    return runtime::make_job(open_workload(recipe), ranks, runtime::capacity_of(recipe.memory, 1));
  }
  static std::string plan_of(const runtime::Job& job) {
    const auto profile = runtime::nominal_profile(job.plan);
    return plan_data(job, runtime::capacity_of({}, 1), profile, runtime::simulate(job.plan, profile), "speeds");
  }

  tests::ScratchFolder folder_;
  simdjson::dom::parser parser_;
  std::string json_;
};

TEST_F(RunData, ReadsStepsEvaluationsAndEvents) {
  folder_.write("report.jsonl", step_line(1, 3) +
                                    "{\"step\":1,\"eval_loss\":2.75,\"eval_tokens\":5,\"time\":1001.5}\n" +
                                    step_line(2, 2.5, true) + "{\"step\":3,\"lo");  // an unfinished run
  folder_.write("events.jsonl", "{\"step\":0,\"event\":\"start\",\"time\":1000,\"ranks\":2}\n");
  folder_.write("recipe.toml", "a = \"</script>\"\n");
  const element all = data();
  EXPECT_EQ(simdjson::minify(all["steps"]["step"]), "[1,2]");
  EXPECT_EQ(simdjson::minify(all["steps"]["loss"]), "[3,2.5]");
  EXPECT_EQ(simdjson::minify(all["steps"]["step_ms"]), "[1,1]");
  EXPECT_EQ(simdjson::minify(all["evaluations"]["loss"]), "[2.75]");
  ASSERT_EQ(simdjson::dom::array(all["events"]).size(), 2u);
  EXPECT_EQ(std::string_view(all["events"].at(0)["more"]), "ranks 2");
  EXPECT_EQ(std::string_view(all["events"].at(1)["event"]), "skipped");
  EXPECT_TRUE(all["summary"].is_null());
  EXPECT_THAT(page_html(Page::run, json_), Not(HasSubstr("a = \\\"</script>"))) << "it would close the page's script";
}

TEST_F(RunData, KeepsExtremesOfManySteps) {
  std::string text;
  for (int i = 1; i <= 1000; ++i) text += step_line(i, i == 437 ? 99 : i == 612 ? -7 : 1);
  folder_.write("report.jsonl", text);
  folder_.write("summary.json", summary_of(5));
  const element all = data(50);
  EXPECT_EQ(simdjson::minify(all["exposed_step_ms"]), "1") << "also for a step that the page does not show";
  const std::string losses = simdjson::minify(all["steps"]["loss"]);
  EXPECT_THAT(losses, HasSubstr(",99,"));
  EXPECT_THAT(losses, HasSubstr(",-7,"));
  EXPECT_LE(simdjson::dom::array(all["steps"]["step"]).size(), 51u);
  EXPECT_THAT(simdjson::minify(all["steps"]["step"]), testing::EndsWith(",1000]"));
}

TEST_F(RunData, MatchesPlannedAndMeasuredTasks) {
  const runtime::Job of = job();
  folder_.write("report.jsonl", step_line(1, 3));
  folder_.write("plan.json", plan_of(of));
  std::string events;
  const auto add = [&](double at, double takes, const std::string& rest) {
    events += fmt::format("{}{{\"ph\":\"X\",\"ts\":{},\"dur\":{},{}}}", events.empty() ? "" : ",", at, takes, rest);
  };
  add(100, 9, "\"pid\":0,\"name\":\"step 4\"");
  add(101, 1, "\"pid\":0,\"args\":{\"task\":0}");
  add(103, 1, "\"pid\":0,\"args\":{\"task\":3}");
  add(200, 9, "\"pid\":0,\"name\":\"step 5\"");
  add(200, 5, "\"pid\":0,\"args\":{\"task\":0}");
  add(205, 2, "\"pid\":0,\"args\":{\"task\":1}");
  add(150, 3, "\"pid\":1,\"name\":\"step 5\"");
  add(150, 2, "\"pid\":1,\"args\":{\"task\":0}");
  folder_.write("trace.json", "{\"traceEvents\":[" + events + "]}");
  const element all = data();
  EXPECT_EQ(std::int64_t(all["measured"]["step"]), 5);
  EXPECT_EQ(double(all["measured"]["ranks"].at(0)["begin"].at(1)), 5);
  EXPECT_EQ(double(all["measured"]["ranks"].at(0)["end"].at(0)), 5);
  EXPECT_EQ(double(all["measured"]["ranks"].at(0)["end"].at(3)), 0) << "of the previous step";
  EXPECT_EQ(std::int64_t(all["measured"]["ranks"].at(1)["rank"]), 1);
  EXPECT_EQ(double(all["measured"]["ranks"].at(1)["end"].at(0)), 2);
  const element plan = all["plan"];
  EXPECT_EQ(simdjson::dom::array(plan["tasks"]["lane"]).size(), of.plan.tasks.size());
  for (std::size_t t = 0; t < of.plan.tasks.size(); ++t) {
    EXPECT_EQ(std::string_view(plan["names"].at(std::uint64_t(plan["tasks"]["name"].at(t)))),
              name_of(of.plan.tasks[t], *of.model));
    EXPECT_EQ(simdjson::dom::array(plan["tasks"]["waits"].at(t)).size(), of.plan.tasks[t].waits.size());
  }
  // The buffers on the page occupy memory as in the plan.
  std::size_t peak = 0;
  for (const element b : simdjson::dom::array(plan["buffers"]))
    if (std::uint64_t(b.at(1)) == 0)
      peak = std::max<std::size_t>(peak, std::uint64_t(b.at(3)) + std::uint64_t(b.at(4)));
  EXPECT_EQ(peak, of.plan.memory[0].peak);
  EXPECT_EQ(std::uint64_t(plan["tiers"].at(0)["peak"]), of.plan.memory[0].peak);
}

TEST_F(RunData, RefusesFilesThatAreNotReports) {
  EXPECT_FAILURE((void)files_of_run(folder_.path()), Exit::usage, HasSubstr("holds no report.jsonl"));
  EXPECT_FAILURE((void)files_of_run(folder_.path() / "none"), Exit::usage, HasSubstr("does not exist"));
  EXPECT_FAILURE((void)files_of_run("/dev/full"), Exit::usage, HasSubstr("/dev/full is neither a file nor a folder"));
  const auto documents = folder_.write("documents.jsonl", "{\"text\":\"a\"}\n");
  EXPECT_FAILURE((void)run_data(files_of_run(documents)), Exit::corrupt, HasSubstr("holds no steps"));
  const auto broken = folder_.write("broken.jsonl", step_line(1, 2) + "{\"step\":2,\n" + step_line(3, 2));
  EXPECT_FAILURE((void)run_data(files_of_run(broken)), Exit::corrupt,
                 testing::EndsWith("broken.jsonl, line 2: expected a JSON object, found an unclosed object"));
  const auto large = folder_.write("large.jsonl", step_line(1, 2) + "{\"step\":2,\"loss\":1e999}\n");
  EXPECT_FAILURE((void)run_data(files_of_run(large)), Exit::corrupt,
                 testing::EndsWith("line 2: expected a JSON object, found 1e999, a number out of range"));
  const auto list = folder_.write("list.jsonl", step_line(1, 2) + "[1]\n");
  EXPECT_FAILURE((void)run_data(files_of_run(list)), Exit::corrupt, testing::EndsWith("found another value"));
  const auto program = folder_.write("program",
                                     "\x7f"
                                     "ELF\"\n\xff");
  EXPECT_FAILURE((void)run_data(files_of_run(program)), Exit::corrupt,
                 testing::EndsWith("program is not JSON lines: its first line has byte 0x7f in place of a value"));
}

// The report of a run that was killed while it wrote, or whose disk was full.
TEST_F(RunData, OmitsADamagedPart) {
  const std::string plan = plan_of(job());
  const std::pair<const char*, std::string> parts[] = {
      {"plan.json", plan}, {"summary.json", summary_of(1)}, {"trace.json", "{\"traceEvents\":[]}"}};
  const auto write_all = [&] {
    folder_.write("report.jsonl", step_line(1, 3));
    for (const auto& [name, text] : parts) folder_.write(name, text);
  };
  const auto noted = [&] {
    testing::internal::CaptureStderr();
    json_ = run_data(files_of_run(folder_.path()));
    return testing::internal::GetCapturedStderr();
  };
  write_all();
  EXPECT_EQ(noted(), "");
  for (const auto& [name, text] : parts)
    for (const std::string& left : {text.substr(0, text.size() / 2), std::string("\xff\xfe"), std::string("{}")}) {
      SCOPED_TRACE(std::string(name) + ": " + left.substr(0, 10));
      write_all();
      folder_.write(name, left);
      const std::string said = noted();
      EXPECT_THAT(said, testing::StartsWith("strata: left out of the page: " + (folder_.path() / name).string()));
      const bool without_trace = std::string_view(name) == "plan.json";
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), without_trace ? 2 : 1) << said;
      const element all = parser_.parse(json_);
      EXPECT_EQ(simdjson::minify(all["steps"]["loss"]), "[3]");
      EXPECT_EQ(all["plan"].is_null(), without_trace);
      EXPECT_EQ(all["summary"].is_null(), std::string_view(name) == "summary.json");
    }
  write_all();
  folder_.write("report.jsonl", "{\"step\":1,\n");
  EXPECT_THAT(noted(), HasSubstr("report.jsonl is not JSON lines: its first line has an unclosed object\n"));
  EXPECT_EQ(simdjson::minify(element(parser_.parse(json_))["steps"]["loss"]), "[]");
  for (const auto& [name, text] : parts) folder_.write(name, "{");
  EXPECT_FAILURE((void)run_data(files_of_run(folder_.path())), Exit::corrupt, HasSubstr("report.jsonl"));
}

TEST_F(RunData, APageIsOneFileAndOverwritesNothingElse) {
  folder_.write("report.jsonl", step_line(1, 3));
  const auto out = folder_.path() / "report.html";
  EXPECT_EQ(report({folder_.path(), out}), 0);
  EXPECT_EQ(report({folder_.path(), out}), 0) << "over its own file";
  const std::string text = folder_.read("report.html");
  EXPECT_THAT(text, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(text, Not(HasSubstr("://"))) << "nothing from a network";
  EXPECT_THAT(text, Not(HasSubstr("@DATA@")));
  const auto mine = folder_.write("mine.html", "mine");
  EXPECT_FAILURE((void)report({folder_.path(), mine}), Exit::usage, HasSubstr("--force"));
  EXPECT_FAILURE((void)report({folder_.path(), folder_.path() / "report.jsonl"}), Exit::usage, HasSubstr("report"));
  EXPECT_EQ(folder_.read("mine.html"), "mine");
}

}  // namespace
}  // namespace strata::launcher
