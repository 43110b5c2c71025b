#pragma once
#include <vector>

#include "models/files/config.h"
#include "runtime/data/data_facts.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What a job is planned from: what the user wrote, the model that this names and the data. The model's config.json is
// read once, when a workload is opened (checkpoint/model_folder.h), and a search plans many recipes with it.
struct Workload {
  Recipe recipe;
  models::Config description;  // of the recipe's model as its folder or preset has it, without model.config.*
  DataFacts data = {};
  std::vector<int> nodes = {};  // of each rank, its node (comm::World::nodes); empty: all are on one

  // The description with the recipe's model.config.* over it. A copy, as a Config remembers what was read of it. Throws
  // Error{usage} if a value is no JSON.
  models::Config config() const;
  // The same model and data under another recipe, which names both as this one does.
  Workload with(Recipe other) const;
};

}  // namespace strata::runtime
