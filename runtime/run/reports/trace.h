#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_writer.h"
#include "models/model.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

class Trace;

// A rank in a trace.
struct TracedRank {
  int rank;
  std::string name;
  const Trace* trace;  // the trace of its stage's plan
};

// The header of a trace: what it is, and which ranks it holds.
struct TraceHead {
  std::string_view kind;            // "measured" or "planned"
  int ranks;                        // the run's ranks; a trace may contain fewer
  std::vector<TracedRank> traced;   // ascending
  std::vector<std::int64_t> steps;  // empty for a plan, whose step has no number
  std::string_view clocks;          // how times of different ranks compare
};

// A trace of a plan's tasks (docs/formats.md, "Traces") as text, piece by piece: begin(), then step() for each rank of
// each step in ascending order, then end(). The stages of a pipeline have a Trace each in one text. Plan and model must
// outlive it.
class Trace {
 public:
  // A task that ran on a rank.
  struct ExecutedTask {
    int rank;
    LaneId lane;
    Span span;
  };

  Trace(const StepPlan& plan, const models::Model& model);

  static std::string begin(const TraceHead& head);
  // `number`: the step's, or 0 for a plan. spans: when the rank's tasks ran in that step, in ns; {0, 0} if a task did
  // not. zero: the time at which the trace begins.
  std::string step(int rank, std::int64_t number, std::span<const Span> spans, std::int64_t zero);
  // The arrow of a message, from the task that sends it to the task that receives it on another rank.
  std::string message(const ExecutedTask& sent, const ExecutedTask& received);
  static std::string end() { return "\n]}\n"; }

 private:
  using Live = std::array<std::array<std::size_t, kKinds>, kTiers>;  // bytes

  void add_slices(std::string& text, int rank, std::int64_t number, std::span<const Span> spans) const;
  void add_arrows(std::string& text, int rank, std::int64_t number, std::span<const Span> spans);
  void add_arrow(std::string& text, const ExecutedTask& from, std::int64_t begin, const ExecutedTask& to,
                 std::int64_t end);
  void add_memory(std::string& text, int rank, std::span<const Span> spans) const;
  void add_counter(std::string& text, int rank, std::size_t tier, std::int64_t at, const Live& live) const;

  const StepPlan& plan_;
  // Per task: the parts of a slice that do not depend on when it ran.
  std::vector<JsonObject> tasks_;
  std::array<bool, kLanes> used_{};                     // one per lane
  std::array<std::array<bool, kKinds>, kTiers> has_{};  // kinds that the plan keeps in a tier
  Live lasting_{};                                      // buffers that live from step to step
  struct Before {
    std::int64_t number = -1;
    std::vector<Span> spans;
  };
  std::vector<Before> before_;  // per rank: the previous step; empty unless crosses_
  bool crosses_ = false;        // some task waits for a task of the previous step
  std::uint64_t arrows_ = 0;
  std::int64_t zero_ = 0;
};

// From the first task's beginning to the end of the last task that the step's end waits for; {0, 0} if no task ran.
Span extent_of(const StepPlan& plan, std::span<const Span> spans);

// The traces of all stages of a pipeline in one text, with an arrow for each message between two stages. For a run
// without stages, the trace of its plan. Plans and model must outlive it.
class StageTraces {
 public:
  // stages: the plan of each, in order.
  StageTraces(std::span<const StepPlan* const> stages, const models::Model& model);

  // The trace of the rank's stage.
  Trace& of(int rank) { return traces_[stage_of(rank)]; }
  // Trace::step() of each rank, then the messages between ranks that both have spans.
  std::string step(std::int64_t number, const std::map<int, std::span<const Span>>& ranks, std::int64_t zero);

 private:
  struct Message {
    std::size_t from, sent, to, received;  // stage and task, twice
  };

  std::size_t stage_of(int rank) const { return static_cast<std::size_t>(mesh_.at(rank).stage); }

  std::vector<const StepPlan*> stages_;
  Mesh mesh_;
  std::vector<Trace> traces_;
  std::vector<Message> messages_;
};

// The whole trace of a simulated step: the plans of all stages of a pipeline, or one plan, and each one's spans. One
// process stands for all ranks of a stage, because they have the same plan.
std::string planned_trace(std::span<const StepPlan* const> stages, const models::Model& model,
                          std::span<const std::vector<Span>> spans);

}  // namespace strata::runtime
