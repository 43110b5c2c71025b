#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/workload.h"

namespace strata::runtime {

// What a workload becomes for a number of ranks: the model prepared for its shapes, and the plan of its step.
struct Job : Workload {
  int ranks;
  std::unique_ptr<models::Model> model;
  StepPlan plan;
  std::vector<std::string> notes = {};  // what the user should know of data, model and plan, a sentence each
  // Of a training that evaluates between steps: forwards alone, beside `plan` (PlanRequest::beside); else null.
  std::unique_ptr<Job> evaluation = {};
  // The same of generation, if evaluations answer prompts.
  std::unique_ptr<Job> generation = {};
};

}  // namespace strata::runtime
