#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "models/model.h"
#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/trace.h"

namespace strata::runtime {

// Tasks of all steps and ranks together that a trace holds: some 100 MB of text, which viewers still open.
inline constexpr std::size_t kMostTraced = 200'000;

// Keeps when this rank's tasks ran in the steps that report.trace_steps picks, in memory that is taken before the
// first.
class TraceRecorder {
 public:
  // Of the steps in (after, last]; `steps` empty: of the one that record_newest() is given. Throws Error{usage} if they
  // are more than a trace holds.
  TraceRecorder(const StepPlan& plan, std::vector<StepRange> steps, std::int64_t after, std::int64_t last);

  // Whether the step is to be issued task by task and waited for (Executor::time_next_step).
  bool wants(std::int64_t step) const;
  // After a step: keeps its spans if it is wanted.
  void record(std::int64_t step, std::span<const Span> spans);
  // At the end: the newest step of which there are spans, if none was picked.
  void record_newest(std::int64_t step, std::span<const Span> spans);

  const std::vector<std::int64_t>& steps() const { return recorded_; }
  // Of the i-th of steps(), by task.
  std::span<const Span> spans(std::size_t i) const { return std::span(spans_).subspan(i * tasks_, tasks_); }
  // "report.trace_steps names ..., and this run took ...", if not all were taken; else empty.
  std::string missing() const;

 private:
  void keep(std::int64_t step, std::span<const Span> spans);

  std::vector<StepRange> picked_;
  std::size_t tasks_, capacity_;        // of a step; steps
  std::vector<std::int64_t> recorded_;  // steps
  std::vector<Span> spans_;             // by step, then task
};

// Which steps rank 0 traces: what ranks record is its to say, as only it writes. nullopt: none. Collective.
std::optional<std::vector<StepRange>> agree_on_traced_steps(const Recipe& recipe, comm::World& world);

// What to add to each rank's times to have them on rank 0's clock. `clocks` names the clock that a rank reads, and
// `together` when, by it, the rank went on from a point that all leave together (0: unknown): of ranks that share a
// clock the earliest counts, and they are not shifted against each other.
std::vector<std::int64_t> clock_shifts(std::span<const std::string> clocks, std::span<const std::int64_t> together);

// Collective: gathers what all ranks recorded and writes it to rank 0's `file` (null elsewhere). Returns how many ranks
// the trace holds: the first so many that their tasks of all steps are at most `most`, and one at least.
int write_trace(ReportFile* file, const TraceRecorder& recorder, const StepPlan& plan, const models::Model& model,
                comm::World& world, std::size_t most = kMostTraced);

}  // namespace strata::runtime
