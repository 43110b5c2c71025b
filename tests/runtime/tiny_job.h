#pragma once
#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/make_job.h"
#include "runtime/planner/planner.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::runtime {

// The job of a small GPT-2 with these keys, on this machine.
inline Job tiny_job(std::vector<std::string> sets, int ranks) {
  sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "data.seq_len=16"});
  const Recipe recipe = load_recipe({}, sets);
  return make_job(open_workload(recipe), ranks, capacity_of(recipe.memory, 1));
}

}  // namespace strata::runtime
