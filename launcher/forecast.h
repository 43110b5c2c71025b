#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/forecast/machine.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/make_job.h"

namespace strata::launcher {

// How long a step of a job takes on a machine that was measured, and what its time goes to.
struct Forecast {
  std::vector<runtime::Span> spans;
  double step_ms, tokens_per_s;
  runtime::BoundSeconds path;  // of the tasks that nothing hides
  runtime::Bound bound() const;
};
// With so many of the job's ranks on each machine. Throws Error{usage} if the job needs what was not measured.
Forecast forecast(const runtime::Job& job, const runtime::Machine& machine, int ranks_per_node);

// A setting with which the step is predicted to be faster.
struct Gain {
  std::string key, value;
  double tokens_per_s;
  bool same_numbers;  // losses stay as they are, bit for bit
};
// Those of one key that fit into `capacity` and gain at least 3%, most first; each was planned and simulated.
std::vector<Gain> gains(const std::optional<std::filesystem::path>& recipe, const std::vector<std::string>& sets,
                        const runtime::Job& job, const runtime::Capacity& capacity, const runtime::Machine& machine,
                        int ranks_per_node);

// What a faster machine would need, if no setting helps: "another drive in memory.nvme".
std::string advice(runtime::Bound bound, bool on_gpu = false);

}  // namespace strata::launcher
