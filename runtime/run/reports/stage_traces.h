#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "runtime/plan/plan.h"
#include "runtime/run/reports/trace.h"

namespace strata::runtime {

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

  std::size_t stage_of(int rank) const { return static_cast<std::size_t>(rank / ranks_of_stage_); }

  std::vector<const StepPlan*> stages_;
  int ranks_of_stage_;
  std::vector<Trace> traces_;
  std::vector<Message> messages_;
};

// The whole trace of a simulated step: the plans of all stages of a pipeline, or one plan, and each one's spans. One
// process stands for all ranks of a stage, because they have the same plan.
std::string planned_trace(std::span<const StepPlan* const> stages, const models::Model& model,
                          std::span<const std::vector<Span>> spans);

}  // namespace strata::runtime
