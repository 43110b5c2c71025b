#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/forecast/machine.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/make_job.h"
#include "runtime/job/search/candidate.h"

namespace strata::launcher {

// The step time of a job on a measured machine, and where the time goes.
struct Forecast {
  std::vector<runtime::Span> spans;
  double step_ms = 0, tokens_per_s = 0;
  runtime::BoundSeconds path;  // time of tasks that is not hidden by others
  runtime::Bound bound() const;
};
// The speeds of the machine with this many of the job's ranks on each node; nominal speeds without a machine file.
// Throws Error{usage} if the job needs a speed that was not measured.
runtime::MachineProfile profile_for(const std::optional<runtime::Machine>& machine, const runtime::Job& job,
                                    int ranks_per_node);

// Predicts a step with this many ranks on each machine. Throws Error{usage} if the job needs a speed that was not
// measured. `stages`: all pipeline stages if there are several. The job plans one of them, whose path is returned.
Forecast forecast(const runtime::Job& job, const runtime::Machine& machine, int ranks_per_node,
                  std::span<const runtime::SimulatedStage> stages = {});

// A setting that is predicted to make the step faster: a change of a key, and of those that must change with it.
struct Speedup {
  runtime::Changes changes;
  double tokens_per_s;
  bool same_numbers;       // losses keep the same bits
  bool needs_more_memory;  // than is available: `memory`
  runtime::Memory memory;  // the most that a rank needs in each tier
};
struct Speedups {
  std::vector<Speedup> faster;       // the largest gain first
  std::vector<std::string> untried;  // keys of settings that were left out because planning them takes long
};
// Settings that gain at least 3% on `now`, the job's tokens per second. Each was planned and simulated, with all
// pipeline stages, and fits into `capacity`; a move of state towards the device is also tried with more memory. `job`:
// any stage of the recipe's job.
Speedups find_speedups(const std::optional<std::filesystem::path>& recipe, const std::vector<std::string>& sets,
                       const runtime::Job& job, double now, const runtime::Capacity& capacity,
                       const runtime::Machine& machine, int ranks_per_node);

// Advice, apart from settings, that would speed up a step of this plan, for example "another drive in memory.nvme".
std::string advice(runtime::Bound bound, const runtime::StepPlan& plan, bool on_gpu = false);

}  // namespace strata::launcher
