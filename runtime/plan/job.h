#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/files/config.h"
#include "models/model.h"
#include "runtime/data/data_facts.h"
#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Everything a job is planned from: the recipe as the user wrote it, the model it names, and the data. config.json is
// read once, when a workload is opened (checkpoint/export/model_folder.h); a search plans many recipes with it.
struct Workload {
  Recipe recipe;
  models::Config description;  // the model as its folder or preset describes it, without model.config.*
  DataFacts data = {};
  std::vector<int> nodes = {};  // the node of each rank (comm::World::nodes); empty: all are on one

  // The description, overridden by the recipe's model.config.*. Returns a copy, because a Config tracks which keys were
  // read. Throws Error{usage} if a value is not JSON.
  models::Config config() const {
    models::Config out = description;
    for (const auto& [key, json] : recipe.model.config) out.override_key(key, json);
    return out;
  }
  // The same model and data with another recipe, which must name the same ones.
  Workload with(Recipe other) const { return {std::move(other), description, data, nodes}; }
};

// A workload made ready for a number of ranks: the model prepared for its shapes, and the plan of its step.
struct Job : Workload {
  int ranks;
  std::unique_ptr<models::Model> model;
  StepPlan plan;
  std::vector<std::string> notes = {};  // sentences for the user, about data, model and plan
  // The evaluation that a training runs between steps: only forwards, in the memory of `plan` (PlanRequest::memory_of).
  // Null if the run does not evaluate.
  std::unique_ptr<Job> evaluation = {};
  // The same for generation, if evaluations answer prompts; otherwise null.
  std::unique_ptr<Job> generation = {};
};

}  // namespace strata::runtime
