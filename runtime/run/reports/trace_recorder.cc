#include "runtime/run/reports/trace_recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/host/host.h"
#include "base/index.h"
#include "runtime/run/reports/trace.h"

namespace strata::runtime {
namespace {

// Names the rank's steady clock, which counts from the machine's start within the process's time namespace.
std::string clock_name(int rank) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 64> space{};
  const ssize_t length = readlink("/proc/self/ns/time", space.data(), space.size());
  if (boot.empty()) return fmt::format("rank {}", rank);  // unknown, so it is shared with no other rank
  return boot + std::string(space.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
}

// Each rank sends the others its clock and its host once. Rank 0 also decides how many ranks of each stage are traced.
struct Places {
  std::vector<std::string> clocks, hosts;
  std::size_t traced;
};
Places exchange_places(comm::World& world, std::size_t traced) {
  Places places;
  for (const std::string& text :
       world.exchange(fmt::format("{}\n{}\n{}", clock_name(world.rank()), host_name(), traced))) {
    std::istringstream lines(text);
    std::getline(lines, places.clocks.emplace_back());
    std::getline(lines, places.hosts.emplace_back());
    if (places.clocks.size() == 1) lines >> places.traced;
  }
  return places;
}

template <typename T>
bool all_equal(const std::vector<T>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

// A step's number and spans as bytes. All ranks run the same program on the same kind of machine.
std::string packed(std::int64_t step, std::span<const Span> spans) {
  std::string bytes(sizeof step + spans.size_bytes(), '\0');
  std::memcpy(bytes.data(), &step, sizeof step);
  std::memcpy(bytes.data() + sizeof step, spans.data(), spans.size_bytes());
  return bytes;
}

// Empty if the spans belong to another step: a rank that launches its steps as graphs may have timed an earlier one.
std::vector<Span> unpacked(const std::string& bytes, std::int64_t step, std::size_t tasks) {
  std::int64_t theirs = 0;
  std::vector<Span> spans(tasks);
  if (bytes.size() != sizeof theirs + tasks * sizeof(Span)) return {};
  std::memcpy(&theirs, bytes.data(), sizeof theirs);
  std::memcpy(spans.data(), bytes.data() + sizeof theirs, tasks * sizeof(Span));
  return theirs == step ? spans : std::vector<Span>{};
}

// When a rank's tasks ran in a step; empty if unknown.
struct RankSpans {
  int rank;
  const StepPlan* plan;
  std::vector<Span> spans;
};

// Shifts times to rank 0's clock, by the end of the step's consensus, which all ranks leave together.
void align(std::vector<RankSpans>& ranks, std::span<const std::string> clocks) {
  std::vector<std::int64_t> together(clocks.size());
  for (const RankSpans& one : ranks)
    for (std::size_t t = 0; t < one.spans.size(); ++t)
      if (one.plan->tasks[t].kind == TaskKind::consensus) together[index(one.rank)] = one.spans[t].end;
  const auto shifts = clock_shifts(clocks, together);
  for (RankSpans& one : ranks)
    for (Span& span : one.spans) {
      const std::int64_t shift = shifts[index(one.rank)];
      if (span.end != 0) span = {span.begin + shift, span.end + shift};
    }
}

}  // namespace

TraceRecorder::TraceRecorder(const StepPlan& plan, std::vector<StepRange> steps, std::int64_t after, std::int64_t last)
    : picked_(std::move(steps)), tasks_(plan.tasks.size()), capacity_(picked_.empty() ? 1 : 0) {
  std::int64_t count = 0;
  for (const StepRange& range : picked_)
    count += std::max<std::int64_t>(0, std::min(range.last, last) - std::max(range.first, after + 1) + 1);
  const auto most = static_cast<std::int64_t>(std::max<std::size_t>(1, kMaxTraced / std::max<std::size_t>(tasks_, 1)));
  if (count > most)
    fail(Exit::usage,
         "report.trace_steps = {} selects {} steps of this run, but a trace holds only {} of {} tasks each: select "
         "fewer",
         steps_text(picked_), count, most, tasks_);
  capacity_ += static_cast<std::size_t>(count);
  recorded_.reserve(capacity_);
  spans_.resize(capacity_ * tasks_);
}

bool TraceRecorder::wants(std::int64_t step) const {
  return std::any_of(picked_.begin(), picked_.end(),
                     [&](const StepRange& range) { return range.first <= step && step <= range.last; });
}

void TraceRecorder::record(std::int64_t step, std::span<const Span> spans) {
  if (wants(step)) keep(step, spans);
}

void TraceRecorder::record_newest(std::int64_t step, std::span<const Span> spans) {
  const bool any = std::any_of(spans.begin(), spans.end(), [](const Span& span) { return span.end != 0; });
  if (picked_.empty() && any) keep(step, spans);
}

void TraceRecorder::keep(std::int64_t step, std::span<const Span> spans) {
  STRATA_CHECK_EQ(spans.size(), tasks_);
  STRATA_CHECK_LT(recorded_.size(), capacity_);
  std::copy(spans.begin(), spans.end(), spans_.begin() + static_cast<std::ptrdiff_t>(recorded_.size() * tasks_));
  recorded_.push_back(step);
}

std::string TraceRecorder::missing() const {
  std::int64_t named = 0;
  for (const StepRange& range : picked_) named += range.last - range.first + 1;
  if (named == static_cast<std::int64_t>(recorded_.size()) || picked_.empty()) return "";
  return fmt::format(
      "report.trace_steps names {}, but this run took {}", steps_text(picked_),
      recorded_.empty() ? "none of them: report.trace holds no step" : fmt::format("{} of them", recorded_.size()));
}

std::optional<std::vector<StepRange>> agree_on_traced_steps(const Recipe& recipe, comm::World& world) {
  std::string mine;
  if (world.rank() == 0 && recipe.report.trace) {
    mine = "trace";
    for (const StepRange& range : recipe.report.trace_steps) mine += fmt::format(" {} {}", range.first, range.last);
  }
  std::istringstream theirs(world.exchange(mine)[0]);
  std::string word;
  if (!(theirs >> word)) return std::nullopt;
  std::vector<StepRange> steps;
  for (StepRange range; theirs >> range.first >> range.last;) steps.push_back(range);
  return steps;
}

std::vector<std::int64_t> clock_shifts(std::span<const std::string> clocks, std::span<const std::int64_t> together) {
  std::map<std::string_view, std::int64_t> earliest;
  for (std::size_t r = 0; r < clocks.size(); ++r) {
    if (together[r] == 0) continue;
    const auto [at, is_new] = earliest.emplace(clocks[r], together[r]);
    if (!is_new) at->second = std::min(at->second, together[r]);
  }
  std::vector<std::int64_t> shifts(clocks.size());
  const auto first = clocks.empty() ? earliest.end() : earliest.find(clocks[0]);
  for (std::size_t r = 0; r < clocks.size() && first != earliest.end(); ++r)
    if (const auto own = earliest.find(clocks[r]); own != earliest.end()) shifts[r] = first->second - own->second;
  return shifts;
}

int write_trace(ReportFile* file, const TraceRecorder& recorder, std::span<const StepPlan* const> stages,
                const models::Model& model, comm::World& world, std::size_t most) {
  const Mesh mesh = stages[0]->mesh();
  const std::size_t steps = recorder.steps().size(), of_stage = index(mesh.ranks_per_stage());
  std::size_t tasks = 0;  // the tasks of one rank of each stage
  for (const StepPlan* const plan : stages) tasks += plan->tasks.size();
  const Places places =
      exchange_places(world, std::clamp<std::size_t>(most / std::max<std::size_t>(1, steps * tasks), 1, of_stage));
  const auto is_traced = [&](int rank) { return index(mesh.place_in_stage(mesh.at(rank))) < places.traced; };
  std::optional<StageTraces> traces;
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank)
    if (is_traced(rank)) ranks.push_back(rank);
  if (file) {
    STRATA_CHECK_EQ(stages.size(), static_cast<std::size_t>(mesh.stages));
    traces.emplace(stages, model);
    TraceHead head{"measured",
                   world.size(),
                   {},
                   recorder.steps(),
                   all_equal(places.clocks) ? "one clock for all ranks"
                                            : "one clock per node; nodes are aligned at the end of each step's "
                                              "consensus, which all ranks leave together"};
    for (const int rank : ranks) {
      std::string name = fmt::format("rank {}", rank);
      if (mesh.stages > 1) name += fmt::format(" (stage {})", mesh.at(rank).stage);
      if (!all_equal(places.hosts)) name += " on " + places.hosts[index(rank)];
      head.traced.push_back({rank, name, &traces->of(rank)});
    }
    file->write(Trace::begin(head));
  }
  const bool traced = is_traced(world.rank());
  std::int64_t zero = std::numeric_limits<std::int64_t>::max();  // beginning of the first step's first task on any rank
  for (std::size_t i = 0; i < steps; ++i) {
    const std::int64_t number = recorder.steps()[i];
    const auto texts = world.exchange(traced ? packed(number, recorder.spans(i)) : "");
    if (!file) continue;
    std::vector<RankSpans> all;
    for (const int rank : ranks) {
      const StepPlan& plan = *stages[index(mesh.at(rank).stage)];
      all.push_back({rank, &plan, unpacked(texts[index(rank)], number, plan.tasks.size())});
    }
    align(all, places.clocks);
    std::map<int, std::span<const Span>> ran;
    for (const RankSpans& of_rank : all) {
      if (of_rank.spans.empty()) continue;
      ran[of_rank.rank] = of_rank.spans;
      if (const Span extent = extent_of(*of_rank.plan, of_rank.spans); i == 0 && extent.end != 0)
        zero = std::min(zero, extent.begin);
    }
    file->write(traces->step(number, ran, zero));
  }
  if (file) file->write(Trace::end());
  return static_cast<int>(places.traced);
}

}  // namespace strata::runtime
