#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "models/model.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// What a trace says of itself, and the names of its processes.
struct TraceHead {
  std::string_view kind;               // "measured" or "planned"
  int ranks;                           // of the run; a trace may hold fewer
  std::vector<std::string> processes;  // by rank
  std::vector<std::int64_t> steps;     // none: a plan's, which has no number
  std::string_view clocks;             // how times of different ranks compare
};

// A trace of a plan's tasks (docs/formats.md, "Traces") as text, piece by piece: begin(), then step() for each rank of
// each step, steps rising, then end(). Plan and model outlive it.
class Trace {
 public:
  Trace(const StepPlan& plan, const models::Model& model);

  std::string begin(const TraceHead& head) const;
  // When the rank's tasks ran in that step (0: a plan's), in ns; {0, 0}: not in this step. `zero`: the trace's begin.
  std::string step(int rank, std::int64_t number, std::span<const Span> spans, std::int64_t zero);
  static std::string end() { return "\n]}\n"; }

 private:
  using Live = std::array<std::array<std::size_t, kKinds>, kTiers>;  // bytes

  void add_slices(std::string& text, int rank, std::int64_t number, std::span<const Span> spans) const;
  void add_arrows(std::string& text, int rank, std::int64_t number, std::span<const Span> spans);
  void add_arrow(std::string& text, int rank, int earlier, const Span& from, const Task& later, const Span& to);
  void add_memory(std::string& text, int rank, std::span<const Span> spans) const;
  void add_counter(std::string& text, int rank, std::size_t tier, std::int64_t at, const Live& live) const;

  const StepPlan& plan_;
  std::vector<JsonObject> tasks_;                       // by task: what a slice says whenever it ran
  std::array<bool, kLanes> used_{};                     // by lane
  std::array<std::array<bool, kKinds>, kTiers> has_{};  // kinds that the plan keeps in a tier
  Live lasting_{};                                      // what lives from step to step
  struct Before {
    std::int64_t number = -1;
    std::vector<Span> spans;
  };
  std::vector<Before> before_;  // by rank: its step before this one; empty if no task waits for such a one's
  bool crosses_ = false;        // a task waits for one of the step before
  std::uint64_t arrows_ = 0;
  std::int64_t zero_ = 0;
};

// From the first task's begin to the end of the last one that the step's end waits for; {0, 0}: none ran.
Span extent_of(const StepPlan& plan, std::span<const Span> spans);

// The whole trace of a plan's simulated step. Every rank has it alike: one process stands for all.
std::string planned_trace(const StepPlan& plan, const models::Model& model, std::span<const Span> spans);

}  // namespace strata::runtime
