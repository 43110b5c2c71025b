#pragma once
#include <memory>
#include <string>

#include "models/model.h"
#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What a recipe becomes for a number of ranks: the model prepared for its shapes, and the plan of its step.
struct Job {
  Recipe recipe;
  int ranks;
  std::unique_ptr<models::Model> model;
  StepPlan plan;
  std::string config;  // of the model, as JSON with its keys in byte order
  // Of a training that evaluates between steps: forwards alone, beside `plan` (PlanRequest::beside); else null.
  std::unique_ptr<Job> evaluation = {};
  // The same of generation, if evaluations answer prompts.
  std::unique_ptr<Job> generation = {};
};

}  // namespace strata::runtime
