#pragma once
#include <vector>

#include "models/files/config.h"
#include "runtime/data/data_facts.h"
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
  models::Config config() const;
  // The same model and data with another recipe, which must name the same ones.
  Workload with(Recipe other) const;
};

}  // namespace strata::runtime
