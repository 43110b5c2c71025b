#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/workload.h"

namespace strata::runtime {

// A workload made ready for a number of ranks: the model prepared for its shapes, and the plan of its step.
struct Job : Workload {
  int ranks;
  std::unique_ptr<models::Model> model;
  StepPlan plan;
  std::vector<std::string> notes = {};  // sentences for the user, about data, model and plan
  // The evaluation that a training runs between steps: forwards alone, in the memory of `plan`
  // (PlanRequest::memory_of). Null if the run does not evaluate.
  std::unique_ptr<Job> evaluation = {};
  // The same for generation, if evaluations answer prompts; otherwise null.
  std::unique_ptr<Job> generation = {};
};

}  // namespace strata::runtime
