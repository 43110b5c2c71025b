#include "runtime/run/reports/run_reports.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/json/json_writer.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr std::array<std::string_view, kTiers> kMemoryTags = {"memory/device_gib", "memory/host_gib",
                                                              "memory/nvme_gib"};

constexpr std::string_view kHeading =
    "step,time,epoch,loss,grad_norm,learning_rate,loss_scale,skipped,tokens,labels,step_ms,tokens_per_s,eval_loss,"
    "eval_tokens\n";

// Empty if x is not finite.
std::string cell(double x) {
  return std::isfinite(x) ? fmt::format("{}", x) : "";
}
std::string step_row(const StepReport& r) {
  return fmt::format("{},{:.3f},{},{},{},{},{},{},{},{},{:.3f},{:.1f},,\n", r.step, r.time, cell(r.epoch), cell(r.loss),
                     cell(r.grad_norm), cell(r.learning_rate), cell(r.loss_scale), r.skipped ? 1 : 0, r.tokens,
                     r.labels, r.step_ms, r.tokens_per_s());
}
std::string evaluation_row(const EvaluationReport& r) {
  return fmt::format("{},{:.3f},,,,,,,,,,,{},{}\n", r.step, r.time, cell(r.loss), r.tokens);
}

// Resident memory of this process in bytes.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail(Exit::failed, "report.dir = {} cannot be created: {}; name another folder", folder.string(), error.message());
}

}  // namespace

RunReports::RunReports(const Recipe& recipe, const std::optional<KeptLines>& kept) {
  const Recipe::Report& report = recipe.report;
  if (report.dir) {
    make_folder(*report.dir);
    // Opened first, because its lock protects the folder. Events of all the run's starts are kept.
    std::optional<KeptLines> all;
    if (kept) all = KeptLines{std::numeric_limits<std::int64_t>::max()};
    events_.emplace(*report.dir / kEventsReport, "report.dir", all);
  }
  if (report.jsonl) jsonl_.emplace(*report.jsonl, "report.jsonl", kept);
  if (report.csv) csv_.emplace(*report.csv, "report.csv", kept, std::string(kHeading));
  if (report.tensorboard) tensorboard_.emplace(*report.tensorboard, kept);
  if (report.summary) summary.emplace(*report.summary, "report.summary");
  if (report.trace) trace.emplace(*report.trace, "report.trace");
  if (report.dir) {
    AtomicFile file(*report.dir / kRecipeReport);
    file.write("# A run of strata: the keys that are not at their default, without report.*\n" + to_toml(recipe));
    file.commit();
  }
}

void RunReports::step(const StepReport& r, const Memory& measured) {
  if (jsonl_) jsonl_->write(step_line(r));
  if (csv_) csv_->write(step_row(r));
  if (!tensorboard_) return;
  std::vector<Scalar> scalars = {{"train/loss", r.loss},
                                 {"train/grad_norm", r.grad_norm},
                                 {"train/learning_rate", r.learning_rate},
                                 {"train/epoch", r.epoch},
                                 {"speed/tokens_per_s", r.tokens_per_s()},
                                 {"speed/step_ms", r.step_ms},
                                 {"memory/process_gib", resident_bytes() / kGiB}};
  if (r.loss_scale != 1) scalars.push_back({"train/loss_scale", r.loss_scale});
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    if (measured[tier].peak) scalars.push_back({kMemoryTags[tier], static_cast<double>(measured[tier].peak) / kGiB});
  tensorboard_->write(r.time, r.step, scalars);
}

void RunReports::evaluation(const EvaluationReport& r) {
  if (jsonl_) {
    std::string lines = evaluation_line(r);
    for (const Answer& answer : r.answers) lines += answer_line(r.step, answer);
    jsonl_->write(lines);
  }
  if (csv_) csv_->write(evaluation_row(r));
  if (!tensorboard_) return;
  std::vector<std::string> tags;  // eval_accuracy becomes "eval/accuracy"
  for (const auto& [name, value] : r.metrics)
    tags.push_back(name.starts_with("eval_") ? "eval/" + name.substr(5) : "eval/" + name);
  std::vector<Scalar> scalars = {{"eval/loss", r.loss}};
  for (std::size_t i = 0; i < tags.size(); ++i) scalars.push_back({tags[i], r.metrics[i].second});
  tensorboard_->write(r.time, r.step, scalars);
}

void RunReports::event(std::string_view what, std::int64_t step,
                       const std::vector<std::pair<std::string_view, std::string>>& figures) {
  if (!events_) return;
  JsonObject line;
  line.add("step", step).add("event", what).add("time", Decimals{seconds_since_epoch(), 3});
  for (const auto& [name, json] : figures) line.add(name, JsonText{json});
  events_->write(line.text() + "\n");
}

void RunReports::close() {
  if (jsonl_) jsonl_->close();
  if (csv_) csv_->close();
  if (tensorboard_) tensorboard_->close();
  if (events_) events_->close();
}

}  // namespace strata::runtime
