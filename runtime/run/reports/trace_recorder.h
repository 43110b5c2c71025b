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

// The maximum number of tasks in a trace, over all steps and ranks: about 100 MB of text, which viewers can still open.
inline constexpr std::size_t kMaxTraced = 200'000;

// Records when this rank's tasks ran in the steps that report.trace_steps selects, in memory that is allocated before
// the first step.
class TraceRecorder {
 public:
  // Records the selected steps in (after, last]; if `steps` is empty, only the step given to record_newest(). Throws
  // Error{usage} if they have more tasks than a trace holds.
  TraceRecorder(const StepPlan& plan, std::vector<StepRange> steps, std::int64_t after, std::int64_t last);

  // True if the step must be issued task by task and waited for (Executor::time_next_step).
  bool wants(std::int64_t step) const;
  // Call it after a step: records its spans if the step is wanted.
  void record(std::int64_t step, std::span<const Span> spans);
  // Call it at the end: records the newest step with spans, if no step was selected.
  void record_newest(std::int64_t step, std::span<const Span> spans);

  const std::vector<std::int64_t>& steps() const { return recorded_; }
  // The spans of the i-th of steps(), by task.
  std::span<const Span> spans(std::size_t i) const { return std::span(spans_).subspan(i * tasks_, tasks_); }
  // "report.trace_steps names ..., but this run took ...", if some selected steps did not happen; otherwise empty.
  std::string missing() const;

 private:
  void keep(std::int64_t step, std::span<const Span> spans);

  std::vector<StepRange> picked_;
  std::size_t tasks_, capacity_;        // tasks per step; the number of steps that fit
  std::vector<std::int64_t> recorded_;  // step numbers
  std::vector<Span> spans_;             // one per step and task
};

// The steps that rank 0 traces. It decides for all ranks, because only it writes the file. nullopt: none. Collective.
std::optional<std::vector<StepRange>> agree_on_traced_steps(const Recipe& recipe, comm::World& world);

// The shifts that convert each rank's times to rank 0's clock. `clocks` names each rank's clock. `together`: when, on
// that clock, the rank left a point that all ranks leave together (0: unknown). Ranks that share a clock get the same
// shift; the earliest of their times counts.
std::vector<std::int64_t> clock_shifts(std::span<const std::string> clocks, std::span<const std::int64_t> together);

// Collective: gathers what all ranks recorded and writes it to rank 0's `file` (null elsewhere). `stages`: the plans of
// all stages of a pipeline, by stage; ranks without a file need only their own. Returns how many ranks of each stage
// the trace contains: the first ones, as long as they have at most `most` tasks in all steps together, but at least
// one.
int write_trace(ReportFile* file, const TraceRecorder& recorder, std::span<const StepPlan* const> stages,
                const models::Model& model, comm::World& world, std::size_t most = kMaxTraced);

}  // namespace strata::runtime
