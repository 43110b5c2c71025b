#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/json/json_fault.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "launcher/report/report.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/run_text.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/run_reports.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using simdjson::dom::element;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The values of a step that are drawn, by their names in report.jsonl.
constexpr std::array<const char*, 8> kStepColumns = {"step",         "loss",  "grad_norm", "lr",
                                                     "tokens_per_s", "epoch", "time",      "step_ms"};
enum Column : std::size_t { kStep, kLoss, kNorm, kRate, kSpeed, kEpoch, kTime, kTook };
using Step = std::array<double, kStepColumns.size()>;

struct Evaluation {
  double step, loss;
};
struct RunEvent {
  double step, time;
  std::string what, more;
};

// NaN if the key is null or missing, because the number was not finite or an older version did not write it.
double number(const element& object, const char* key) {
  double value = kNone;
  return object[key].get(value) == simdjson::SUCCESS ? value : kNone;
}

std::string read_text(const fs::path& path) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 32;
  return read_input(path, path.string(), kMaxBytes);
}

// Calls use(element) for each line. While the run is in progress, the last line may be incomplete.
template <typename Use>
void for_lines(const fs::path& path, Use&& use) {
  const std::string text = read_text(path);
  simdjson::dom::parser parser;
  std::size_t number = 0;
  const auto refuse = [&](std::string_view line) {
    const auto fault = find_json_fault(line);
    const std::string found = fault ? fault->found : "another value";
    if (number == 1) fail(Exit::corrupt, "{} is not JSON lines: its first line has {}", path.string(), found);
    fail(Exit::corrupt, "{}, line {}: expected a JSON object, found {}", path.string(), number, found);
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    ++number;
    if (end == std::string::npos) return;
    element line;
    if (parser.parse(text.data() + at, end - at).get(line) || !line.is_object())
      refuse(std::string_view(text).substr(at, end - at));
    use(line);
    at = end + 1;
  }
}

struct Lines {
  std::vector<Step> steps;
  std::vector<Evaluation> evaluations;
  std::vector<RunEvent> events;
};

Lines steps_of(const fs::path& path) {
  Lines lines;
  for_lines(path, [&](const element& line) {
    if (const double loss = number(line, "eval_loss"); !std::isnan(loss)) {
      lines.evaluations.push_back({number(line, "step"), loss});
      return;
    }
    if (line["prompt"].error() == simdjson::SUCCESS) return;  // the answer to a prompt in an evaluation
    Step& step = lines.steps.emplace_back();
    for (std::size_t i = 0; i < kStepColumns.size(); ++i) step[i] = number(line, kStepColumns[i]);
    bool skipped = false;
    if (line["skipped"].get(skipped) == simdjson::SUCCESS && skipped)
      lines.events.push_back(
          {step[kStep], step[kTime], "skipped", fmt::format("loss scale {:g}", number(line, "loss_scale"))});
  });
  if (lines.steps.empty() || std::isnan(lines.steps[0][kStep]))
    fail(Exit::corrupt, "{} holds no steps: strata report takes the report.jsonl of a run, or its report.dir",
         path.string());
  return lines;
}

std::vector<RunEvent> events_of(const fs::path& path) {
  std::vector<RunEvent> events;
  for_lines(path, [&](const element& line) {
    std::string_view what;
    if (line["event"].get(what) != simdjson::SUCCESS) what = "?";
    std::string more;
    for (const char* key : {"ranks", "exit", "cause"}) {
      element value;
      if (line[key].get(value) == simdjson::SUCCESS)
        more += fmt::format("{}{} {}", more.empty() ? "" : ", ", key, simdjson::minify(value));
    }
    events.push_back({number(line, "step"), number(line, "time"), std::string(what), more});
  });
  return events;
}

std::vector<Step> downsampled(const std::vector<Step>& steps, std::size_t most) {
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
JsonArray column(const std::vector<Row>& rows, F&& f) {
  JsonArray out;
  for (const Row& row : rows) out.add(f(row));
  return out;
}

// When a rank's tasks ran, by task, in us; 0 if a task did not run.
struct Timing {
  std::vector<double> begin, end;
  double step_begin = -std::numeric_limits<double>::infinity();  // when the rank's newest step began
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
               number(event, "ts") > timing.step_begin) {  // the step's own row tells where it begins
      timing.step_begin = number(event, "ts");
      timing.step = name.substr(5);
    }
  }
  return out;
}

void parse_object(const fs::path& path, element& root, simdjson::dom::parser& parser) {
  const std::string text = read_text(path);
  if (parser.parse(text).get(root) || !root.is_object())
    fail(Exit::corrupt, "{}: expected a JSON object, found {}", path.string(), found_in_json(text));
}

// The newest step of a measured trace, for as many ranks as fit on a page, in us from its beginning on each rank.
std::string measured(const fs::path& path, std::size_t tasks) {
  constexpr std::size_t kMaxTasks = 100'000;  // for all ranks together: some 2 MB
  simdjson::dom::parser parser;
  element trace;
  parse_object(path, trace, parser);
  simdjson::dom::array events;
  if (trace["traceEvents"].get(events)) fail(Exit::corrupt, "{} is not a trace: it has no traceEvents", path.string());
  JsonArray ranks;
  std::string step = "0";
  std::size_t shown = 0;
  for (auto& [rank, timing] : timings_of(events, tasks)) {
    if (shown++ > 0 && shown * tasks > kMaxTasks) break;
    if (shown == 1) step = timing.step;
    double first = std::numeric_limits<double>::infinity();
    for (std::size_t t = 0; t < tasks; ++t) {
      if (timing.begin[t] < timing.step_begin - 0.01) timing.end[t] = 0;  // from an earlier step
      if (timing.end[t] > 0) first = std::min(first, timing.begin[t]);
    }
    const auto shifted = [&, &end = timing.end](const std::vector<double>& times) {
      JsonArray list;
      for (std::size_t t = 0; t < tasks; ++t) list.add(Decimals{end[t] > 0 ? times[t] - first : 0, 1});
      return list;
    };
    ranks.add(JsonObject().add("rank", rank).add("begin", shifted(timing.begin)).add("end", shifted(timing.end)));
  }
  return JsonObject().add("step", JsonText{step}).add("ranks", ranks).text();
}

// Requires `keys` (JSON pointers), which the page's script relies on.
void require_keys(const fs::path& path, const element& root, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    if (root.at_pointer(key).error())
      fail(Exit::corrupt, "{} was not written by a run: it lacks {}", path.string(), key.substr(1));
}

struct PlanPart {
  std::string json = "null", subtitle;
  std::size_t tasks = 0;
};

PlanPart plan_of(const fs::path& path) {
  simdjson::dom::parser parser;
  element root;
  parse_object(path, root, parser);
  require_keys(path, root,
               {"/speeds", "/path", "/tiers", "/lanes", "/names", "/buffers", "/tasks/lane", "/tasks/name",
                "/tasks/begin", "/tasks/end", "/tasks/waits"});
  std::string_view model;
  std::uint64_t parameters = 0, ranks = 0, data_ranks = 0, stage = 0;
  simdjson::dom::array tasks;
  if (root["model"].get(model) || root["parameters"].get(parameters) || root["ranks"].get(ranks) ||
      root["stage"].get(stage) || root["tasks"]["lane"].get(tasks))
    fail(Exit::corrupt, "{} is not a run's plan", path.string());
  if (root["data_ranks"].get(data_ranks)) data_ranks = ranks;  // plans of earlier versions
  return {simdjson::minify(root),
          fmt::format("{} of {} parameters, {}", model, count_text(parameters),
                      zero_text(stage, static_cast<int>(data_ranks), static_cast<int>(ranks))),
          tasks.size()};
}

struct SummaryPart {
  std::string json = "null";
  double exposed_step = kNone;
};

SummaryPart summary_of(const fs::path& path) {
  simdjson::dom::parser parser;
  element root;
  parse_object(path, root, parser);
  simdjson::dom::object memory;
  require_keys(path, root, {"/memory/device/planned_peak_bytes"});
  if (root["memory"].get(memory)) fail(Exit::corrupt, "{} is not a run's summary", path.string());
  for (const auto tier : memory)
    for (const char* key : {"planned_peak_bytes", "measured_peak_bytes", "by_kind", "planned_by_kind"})
      if (tier.value[key].error())
        fail(Exit::corrupt, "{} was not written by a run: it lacks memory/{}/{}", path.string(), tier.key, key);
  return {simdjson::minify(root), number(root, "exposed_step")};
}

// Reads the parts of a page. A part whose file is truncated or damaged is left out, and the user is told why.
class Parts {
 public:
  // The result of read(path), or an empty value if the part is left out. Files are empty until the run writes them.
  template <typename Read>
  auto read(const fs::path& path, Read&& read) {
    decltype(read(path)) part{};
    std::error_code error;
    if (path.empty() || (fs::file_size(path, error) == 0 && !error)) return part;
    try {
      part = read(path);
    } catch (const Error& damaged) {
      left_out_.push_back(damaged);
    }
    return part;
  }
  void leave_out(Error why) { left_out_.push_back(std::move(why)); }
  void report_left_out() const {
    for (const Error& why : left_out_) say("left out of the page: {}", why.what());
  }
  // Throws the error of the first part that was left out, because there is no page.
  void refuse() const {
    if (!left_out_.empty()) throw left_out_.front();
  }

 private:
  std::vector<Error> left_out_;
};

}  // namespace

RunFiles files_of_run(const fs::path& from) {
  std::error_code error;
  RunFiles files;
  fs::path folder = from;
  if (!fs::is_directory(from, error)) {
    if (!fs::exists(from, error)) fail(Exit::usage, "{} does not exist", from.string());
    if (!fs::is_regular_file(from, error))  // reading a device might never end
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
  Parts parts;
  Lines lines = parts.read(files.steps, steps_of);
  const std::vector<RunEvent> of_file = parts.read(files.events, events_of);
  lines.events.insert(lines.events.end(), of_file.begin(), of_file.end());
  std::stable_sort(lines.events.begin(), lines.events.end(),
                   [](const RunEvent& a, const RunEvent& b) { return a.time < b.time; });
  const PlanPart plan = parts.read(files.plan, plan_of);
  const SummaryPart summary = parts.read(files.summary, summary_of);
  if (lines.steps.empty() && plan.tasks == 0 && summary.json == "null") {
    parts.refuse();
    fail(Exit::corrupt, "{} holds no steps yet, and there is no plan or summary next to it", files.steps.string());
  }
  std::string times = "null";
  if (plan.tasks > 0)
    times = parts.read(files.trace, [&](const fs::path& path) { return measured(path, plan.tasks); });
  else if (!files.plan.empty() && !files.trace.empty())
    parts.leave_out(Error(Exit::corrupt, fmt::format("{}, which names tasks of the plan", files.trace.string())));
  const std::string recipe = parts.read(files.recipe, read_text);
  parts.report_left_out();

  std::string title = files.steps.filename() == "report.jsonl" && files.steps.has_parent_path()
                          ? fs::absolute(files.steps).parent_path().filename().string()
                          : files.steps.filename().string();
  std::string subtitle = plan.subtitle;
  if (!lines.steps.empty()) subtitle += (subtitle.empty() ? "" : ", ") + counted(lines.steps.size(), "step");
  double exposed_ms = kNone;  // of the step whose critical path is in the summary, which the curves may leave out
  for (const Step& step : lines.steps)
    if (step[kStep] == summary.exposed_step) exposed_ms = step[kTook];
  JsonArray events;
  for (const RunEvent& e : lines.events)
    events.add(JsonObject().add("step", e.step).add("time", e.time).add("event", e.what).add("more", e.more));
  const std::vector<Step> steps = downsampled(lines.steps, most);
  JsonObject columns;
  for (std::size_t i = 0; i < kStepColumns.size(); ++i)
    columns.add(kStepColumns[i], column(steps, [i](const Step& s) { return s[i]; }));
  return JsonObject()
      .add("title", title)
      .add("subtitle", subtitle)
      .add("steps", columns)
      .add("evaluations", JsonObject()
                              .add("step", column(lines.evaluations, [](const Evaluation& e) { return e.step; }))
                              .add("loss", column(lines.evaluations, [](const Evaluation& e) { return e.loss; })))
      .add("events", events)
      .add("summary", JsonText{summary.json})
      .add("exposed_step_ms", exposed_ms)
      .add("plan", JsonText{plan.json})
      .add("measured", JsonText{times.empty() ? "null" : times})
      .add("recipe", JsonText{recipe.empty() ? "null" : json_string(recipe)})
      .text();
}

}  // namespace strata::launcher
