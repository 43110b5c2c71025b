#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/forecast/machine.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/make_job.h"

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

// A change of a setting that is predicted to make the step faster.
struct Gain {
  std::string key, value;
  double tokens_per_s;
  bool same_numbers;  // losses keep the same bits
};
// Changes of a single key that fit into `capacity` and gain at least 3%, the largest gain first. Each change was
// planned and simulated. For a pipeline, no changes are tried.
std::vector<Gain> gains(const std::optional<std::filesystem::path>& recipe, const std::vector<std::string>& sets,
                        const runtime::Job& job, const runtime::Capacity& capacity, const runtime::Machine& machine,
                        int ranks_per_node);

// The upgrade that would help if no setting does, for example "another drive in memory.nvme". `pieces`: from
// pieces_to_try().
std::string advice(runtime::Bound bound, bool on_gpu = false, std::string_view pieces = {});
// The keys that cut the job's pipeline into more pieces: "parallel.chunks = 3". Empty if the job cannot have more.
std::string pieces_to_try(const runtime::Job& job);

}  // namespace strata::launcher
