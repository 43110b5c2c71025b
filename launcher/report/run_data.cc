#include "launcher/report/run_data.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/value.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/run_reports.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using runtime::json_number;
using runtime::json_string;
using simdjson::dom::element;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// What is drawn of a step, by the name it has in report.jsonl.
constexpr std::array<const char*, 8> kColumns = {"step",         "loss",  "grad_norm", "lr",
                                                 "tokens_per_s", "epoch", "time",      "step_ms"};
enum Column : std::size_t { kStep, kLoss, kNorm, kRate, kSpeed, kEpoch, kTime, kTook };
using Step = std::array<double, kColumns.size()>;

struct Evaluation {
  double step, loss;
};
struct Event {
  double step, time;
  std::string what, more;
};

// null, or not there: a number that is not finite, or that an older run did not write.
double number(const element& object, const char* key) {
  double value = kNone;
  return object[key].get(value) == simdjson::SUCCESS ? value : kNone;
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(Exit::failed, "{} cannot be read", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

// Calls use(element) for each line. The last one may be half written by a run that goes on.
template <typename Use>
void for_lines(const fs::path& path, Use&& use) {
  const std::string text = read_text(path);
  simdjson::dom::parser parser;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    ++number;
    if (end == std::string::npos) return;
    element line;
    if (const auto error = parser.parse(text.data() + at, end - at).get(line))
      fail(Exit::corrupt, "{}, line {}: expected a JSON object, found {}", path.string(), number,
           simdjson::error_message(error));
    if (!line.is_object()) fail(Exit::corrupt, "{}, line {}: expected a JSON object", path.string(), number);
    use(line);
    at = end + 1;
  }
}

struct Lines {
  std::vector<Step> steps;
  std::vector<Evaluation> evaluations;
  std::vector<Event> events;
};

void read_steps(const fs::path& path, Lines& lines) {
  for_lines(path, [&](const element& line) {
    if (const double loss = number(line, "eval_loss"); !std::isnan(loss)) {
      lines.evaluations.push_back({number(line, "step"), loss});
      return;
    }
    if (line["prompt"].error() == simdjson::SUCCESS) return;  // an answer that an evaluation got
    Step& step = lines.steps.emplace_back();
    for (std::size_t i = 0; i < kColumns.size(); ++i) step[i] = number(line, kColumns[i]);
    bool skipped = false;
    if (line["skipped"].get(skipped) == simdjson::SUCCESS && skipped)
      lines.events.push_back(
          {step[kStep], step[kTime], "skipped", fmt::format("loss scale {:g}", number(line, "loss_scale"))});
  });
  if (lines.steps.empty() || std::isnan(lines.steps[0][kStep]))
    fail(Exit::corrupt, "{} holds no steps: strata report takes the report.jsonl of a run, or its report.dir",
         path.string());
}

void read_events(const fs::path& path, Lines& lines) {
  for_lines(path, [&](const element& line) {
    std::string_view what;
    if (line["event"].get(what) != simdjson::SUCCESS) what = "?";
    std::string more;
    for (const char* key : {"ranks", "exit", "cause"}) {
      element value;
      if (line[key].get(value) == simdjson::SUCCESS)
        more += fmt::format("{}{} {}", more.empty() ? "" : ", ", key, simdjson::minify(value));
    }
    lines.events.push_back({number(line, "step"), number(line, "time"), std::string(what), more});
  });
}

std::vector<Step> thinned(const std::vector<Step>& steps, std::size_t most) {
  if (steps.size() <= most) return steps;
  std::vector<Step> out;
  const std::size_t buckets = most / 2;
  for (std::size_t b = 0; b < buckets; ++b) {
    const auto begin = steps.begin() + static_cast<std::ptrdiff_t>(b * steps.size() / buckets);
    const auto end = steps.begin() + static_cast<std::ptrdiff_t>((b + 1) * steps.size() / buckets);
    auto [least, largest] =
        std::minmax_element(begin, end, [](const Step& x, const Step& y) { return x[kLoss] < y[kLoss]; });
    if (largest < least) std::swap(least, largest);
    out.push_back(*least);
    if (largest != least) out.push_back(*largest);
  }
  if (out.back()[kStep] != steps.back()[kStep]) out.push_back(steps.back());
  return out;
}

template <typename Row, typename F>
std::string column(const std::vector<Row>& rows, F&& f) {
  std::string text = "[";
  for (std::size_t i = 0; i < rows.size(); ++i) text += (i ? "," : "") + json_number(f(rows[i]));
  return text + "]";
}

// When a rank's tasks ran, by task, in us; 0: it did not.
struct Timing {
  std::vector<double> begin, end;
  double step_begin = -std::numeric_limits<double>::infinity();  // of its newest step
  std::string step = "0";
};

std::map<std::uint64_t, Timing> timings_of(const simdjson::dom::array& events, std::size_t tasks) {
  std::map<std::uint64_t, Timing> out;
  for (const element event : events) {
    std::string_view phase, name;
    std::uint64_t task = 0, rank = 0;
    if (event["ph"].get(phase) || phase != "X" || event["pid"].get(rank)) continue;
    Timing& timing =
        out.try_emplace(rank, Timing{std::vector<double>(tasks, 0), std::vector<double>(tasks, 0)}).first->second;
    if (event["args"]["task"].get(task) == simdjson::SUCCESS) {
      if (task >= tasks) continue;
      timing.begin[task] = number(event, "ts");
      timing.end[task] = timing.begin[task] + number(event, "dur");
    } else if (event["name"].get(name) == simdjson::SUCCESS && name.starts_with("step ") &&
               number(event, "ts") > timing.step_begin) {  // the step's own row says where it begins
      timing.step_begin = number(event, "ts");
      timing.step = name.substr(5);
    }
  }
  return out;
}

// The newest step of a measured trace: of the first ranks, as many as a page holds, in us from each one's own begin.
std::string measured(const fs::path& path, std::size_t tasks) {
  constexpr std::size_t kMostTasks = 100'000;  // of all ranks: some 2 MB
  simdjson::dom::parser parser;
  element trace;
  if (parser.load(path.string()).get(trace)) fail(Exit::corrupt, "{} is no JSON", path.string());
  simdjson::dom::array events;
  if (trace["traceEvents"].get(events)) fail(Exit::corrupt, "{} is no trace: it has no traceEvents", path.string());
  std::string ranks, step = "0";
  std::size_t shown = 0;
  for (auto& [rank, timing] : timings_of(events, tasks)) {
    if (shown++ > 0 && shown * tasks > kMostTasks) break;
    if (shown == 1) step = timing.step;
    double first = std::numeric_limits<double>::infinity();
    for (std::size_t t = 0; t < tasks; ++t) {
      if (timing.begin[t] < timing.step_begin - 0.01) timing.end[t] = 0;  // of a step before: this one left it out
      if (timing.end[t] > 0) first = std::min(first, timing.begin[t]);
    }
    const auto shifted = [&, &end = timing.end](const std::vector<double>& times) {
      std::string text = "[";
      for (std::size_t t = 0; t < tasks; ++t)
        text += fmt::format("{}{:.1f}", t ? "," : "", end[t] > 0 ? times[t] - first : 0);
      return text + "]";
    };
    ranks += fmt::format("{}{{\"rank\":{},\"begin\":{},\"end\":{}}}", ranks.empty() ? "" : ",", rank,
                         shifted(timing.begin), shifted(timing.end));
  }
  return fmt::format("{{\"step\":{},\"ranks\":[{}]}}", step, ranks);
}

std::string of_object(const fs::path& path, element& root, simdjson::dom::parser& parser) {
  if (parser.load(path.string()).get(root) || !root.is_object())
    fail(Exit::corrupt, "{} is no JSON object", path.string());
  return simdjson::minify(root);
}

}  // namespace

RunFiles files_of_run(const fs::path& from) {
  std::error_code error;
  RunFiles files;
  fs::path folder = from;
  if (!fs::is_directory(from, error)) {
    if (!fs::exists(from, error)) fail(Exit::usage, "{} is not there", from.string());
    if (!fs::is_regular_file(from, error))  // a device might have no end
      fail(Exit::usage,
           "{} is neither a file nor a folder: strata report takes a run's report.dir, or its report.jsonl",
           from.string());
    files.steps = from;
    if (from.filename() != "report.jsonl") return files;
    folder = from.parent_path();
  }
  const auto find = [&](fs::path& path, std::string_view name) {
    if (fs::is_regular_file(folder / name, error)) path = folder / name;
  };
  find(files.steps, "report.jsonl");
  find(files.events, runtime::kEventsReport);
  find(files.summary, "summary.json");
  find(files.plan, runtime::kPlanReport);
  find(files.trace, "trace.json");
  find(files.recipe, runtime::kRecipeReport);
  if (files.steps.empty())
    fail(Exit::usage, "{} holds no report.jsonl: strata report takes the report.dir of a run, or its report.jsonl",
         from.string());
  return files;
}

std::string run_data(const RunFiles& files, std::size_t most) {
  Lines lines;
  read_steps(files.steps, lines);
  if (!files.events.empty()) read_events(files.events, lines);
  std::stable_sort(lines.events.begin(), lines.events.end(),
                   [](const Event& a, const Event& b) { return a.time < b.time; });
  std::string title = files.steps.filename() == "report.jsonl" && files.steps.has_parent_path()
                          ? fs::absolute(files.steps).parent_path().filename().string()
                          : files.steps.filename().string();
  std::string subtitle = fmt::format("{} steps", lines.steps.size()), plan = "null", summary = "null", times = "null";
  simdjson::dom::parser parser;
  element root;
  if (!files.plan.empty()) {
    plan = of_object(files.plan, root, parser);
    std::string_view model;
    std::uint64_t parameters = 0, ranks = 0, stage = 0;
    simdjson::dom::array tasks;
    if (root["model"].get(model) || root["parameters"].get(parameters) || root["ranks"].get(ranks) ||
        root["stage"].get(stage) || root["tasks"]["lane"].get(tasks))
      fail(Exit::corrupt, "{} is no plan of a run", files.plan.string());
    subtitle = fmt::format("{} of {} parameters, ZeRO-{} over {} {}, {}", model, runtime::count_text(parameters), stage,
                           ranks, ranks == 1 ? "rank" : "ranks", subtitle);
    if (!files.trace.empty() && fs::file_size(files.trace) > 0) times = measured(files.trace, tasks.size());
  }
  double exposed_ms = kNone;  // of the step whose critical path the summary has, which may be left out of the curves
  if (!files.summary.empty() && fs::file_size(files.summary) > 0) {
    summary = of_object(files.summary, root, parser);
    const double exposed = number(root, "exposed_step");
    for (const Step& step : lines.steps)
      if (step[kStep] == exposed) exposed_ms = step[kTook];
  }
  std::string events;
  for (const Event& e : lines.events)
    events += fmt::format("{}{{\"step\":{},\"time\":{},\"event\":{},\"more\":{}}}", events.empty() ? "" : ",",
                          json_number(e.step), json_number(e.time), json_string(e.what), json_string(e.more));
  const std::vector<Step> steps = thinned(lines.steps, most);
  std::string columns;
  for (std::size_t i = 0; i < kColumns.size(); ++i)
    columns +=
        fmt::format("{}\"{}\":{}", i ? "," : "", kColumns[i], column(steps, [i](const Step& s) { return s[i]; }));
  return fmt::format(
      "{{\"title\":{},\"subtitle\":{},\"steps\":{{{}}},\"evaluations\":{{\"step\":{},\"loss\":{}}},\"events\":[{}],"
      "\"summary\":{},\"exposed_step_ms\":{},\"plan\":{},\"measured\":{},\"recipe\":{}}}",
      json_string(title), json_string(subtitle), columns,
      column(lines.evaluations, [](const Evaluation& e) { return e.step; }),
      column(lines.evaluations, [](const Evaluation& e) { return e.loss; }), events, summary, json_number(exposed_ms),
      plan, times, files.recipe.empty() ? "null" : json_string(read_text(files.recipe)));
}

}  // namespace strata::launcher
