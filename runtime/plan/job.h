#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/files/config.h"
#include "models/model.h"
#include "models/objective.h"
#include "runtime/data/data_facts.h"
#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// An adapter that files describe: a peft folder, or the checkpoint that model.path names.
struct ResolvedAdapter {
  Recipe::AdapterKeys keys;
  // Only for a checkpoint: how it stores the adapter's base.
  struct Frozen {
    FrozenFormat format;
    bool double_quant;
  };
  std::optional<Frozen> of_checkpoint = {};
};

// The values of keys that a recipe leaves to its files (facts about data are in DataFacts). Each member is found once,
// when the model, the data or the checkpoint to resume from is opened, and passed on as a value.
struct Resolved {
  std::optional<std::filesystem::path> base;   // the model itself, if model.path is the folder of an adapter of it
  std::optional<ResolvedAdapter> adapter;      // in place of adapter.*
  std::optional<models::Objective> objective;  // the model's, unless the recipe has training.objective
  // Overrides of config.json, in the form of model.config and with precedence over it: a classifier's classes, which
  // the data name, and the architecture.
  std::map<std::string, std::string> config = {};
  std::optional<std::int64_t> tensor_shards;  // the checkpoint's; in a job, those that it was planned with
};

// All inputs of a job: the recipe as the user wrote it, the model that it names, and the data. config.json is read
// once, when a workload is opened (checkpoint/export/model_folder.h); a search plans many recipes with it.
struct Workload {
  Recipe recipe;
  models::Config description;  // the model as its folder or preset describes it, without model.config.*
  DataFacts data = {};
  std::vector<int> nodes = {};  // the node of each rank (comm::World::nodes); empty: all are on one
  Resolved resolved = {};

  // The description, overridden by the recipe's model.config.* and by resolved.config. Returns a copy, because a Config
  // tracks which keys were read. Throws Error{usage} if a value is not JSON.
  models::Config config() const;
  // The values that apply to the run: the recipe's, or those found in files.
  const std::optional<std::filesystem::path>& model_path() const {
    return resolved.base ? resolved.base : recipe.model.path;
  }
  const Recipe::AdapterKeys& adapter() const { return resolved.adapter ? resolved.adapter->keys : recipe.adapter; }
  bool has_adapter_of_checkpoint() const { return resolved.adapter && resolved.adapter->of_checkpoint; }
  std::optional<device::StorageFormat> quantised() const;  // the format of frozen matrices
  std::optional<models::Objective> objective() const {     // nullopt before resolve_objective()
    return recipe.training.objective ? recipe.training.objective : resolved.objective;
  }
  Packing packing() const {  // automatic before resolve_data()
    return recipe.data.packing != Packing::automatic ? recipe.data.packing : data.packing;
  }
  std::size_t shards() const;  // virtual shards

  // The recipe with all of these values, as checkpoints and reports record it. A search starts from it, so that each
  // suggestion differs from the run only in what it names.
  Recipe complete_recipe() const;
  // The same model and data with another recipe, which must name the same ones.
  Workload with(Recipe other) const { return {std::move(other), description, data, nodes, resolved}; }
};

// A workload prepared for a number of ranks: the model with the run's shapes, and the plan of its step.
struct Job : Workload {
  int ranks;
  std::unique_ptr<models::Model> model;
  StepPlan plan;
  std::vector<std::string> notes = {};  // sentences for the user, about data, model and plan
  // The job of the evaluations between training steps: only forwards, in the memory of `plan` (PlanRequest::memory_of).
  // Null if the run does not evaluate.
  std::unique_ptr<Job> evaluation = {};
  // The same for generation, if evaluations answer prompts; otherwise null.
  std::unique_ptr<Job> generation = {};
  // The number of tasks in the plans by which parallel.split = "auto" was chosen, which count in a search's limit.
  std::size_t split_tasks = 0;
};

}  // namespace strata::runtime
