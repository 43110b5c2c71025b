#include "runtime/job/search/meshes.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/job/requirements.h"

namespace strata::runtime {
namespace {

// True if the job may have more virtual shards: they are not a checkpoint's, but the recipe's own or as many as
// parallel.tensor. make_job() resolves the latter if there are several.
bool may_have_more_shards(const Job& job) {
  const Recipe& recipe = job.recipe;
  if (recipe.checkpoint.resume != "auto" && recipe.checkpoint.resume != "none") return false;
  const auto &own = recipe.parallel.tensor_shards, &resolved = job.resolved.tensor_shards;
  return own || !resolved || (*resolved > 1 && *resolved == recipe.parallel.tensor);
}

// Sets the degrees, and the keys that have to change with them.
Changes set_degrees(Recipe& recipe, Degrees degrees, bool more_shards) {
  const auto [tensor, stages] = degrees;
  Recipe::Parallel& parallel = recipe.parallel;
  Changes changes;
  if (stages != parallel.stages) {
    changes.emplace_back("parallel.stages", std::to_string(stages));
    if (!parallel.split.empty()) changes.emplace_back("parallel.split", "\"auto\"");
    parallel.split.clear();  // it is a list for another number of stages
  }
  if (tensor != parallel.tensor) changes.emplace_back("parallel.tensor", std::to_string(tensor));
  if (more_shards && parallel.tensor_shards && *parallel.tensor_shards < tensor) {
    parallel.tensor_shards = tensor;
    changes.emplace_back("parallel.tensor_shards", std::to_string(tensor));
  }
  parallel.tensor = tensor;
  parallel.stages = stages;
  if (stages > 1) {
    if (recipe.memory.order == AccumulationOrder::vertical) changes.emplace_back("memory.order", "\"horizontal\"");
    recipe.memory.order = AccumulationOrder::horizontal;
  }
  return changes;
}

}  // namespace

std::vector<Degrees> degrees_to_try(const Recipe::Parallel& parallel, int ranks, std::size_t units) {
  const int most = static_cast<int>(std::min<std::size_t>(units, static_cast<std::size_t>(ranks)));
  const auto divide = [&](Degrees d) { return d.tensor * d.stages <= ranks && ranks % (d.tensor * d.stages) == 0; };
  std::vector<Degrees> out, both;
  for (int stages = parallel.stages + 1; stages <= most; ++stages)
    if (divide({parallel.tensor, stages})) out.push_back({parallel.tensor, stages});
  for (int tensor = 2 * parallel.tensor; tensor <= ranks; tensor *= 2) {
    if (divide({tensor, parallel.stages})) out.push_back({tensor, parallel.stages});
    for (int stages = 1; stages <= most; ++stages)
      if (stages != parallel.stages && divide({tensor, stages})) both.push_back({tensor, stages});
  }
  std::ranges::stable_sort(both, {}, [](Degrees d) { return d.tensor * d.stages; });
  out.insert(out.end(), both.begin(), both.end());
  return out;
}

std::optional<OtherMesh> mesh_with(const Job& job, Degrees degrees, StepBatch batch) {
  Recipe recipe = job.complete_recipe();
  const std::int64_t before = recipe.parallel.replica(), steps = recipe.accumulation_steps(job.ranks);
  const bool is_fixed = recipe.training.global_batch_size.has_value();
  Changes changes = set_degrees(recipe, degrees, may_have_more_shards(job));
  const std::int64_t after = recipe.parallel.replica();
  if (batch == StepBatch::smaller && (is_fixed || after <= before)) return std::nullopt;
  if (batch == StepBatch::same && !is_fixed && after != before) {
    if (steps * after % before != 0) return std::nullopt;
    recipe.training.gradient_accumulation_steps = steps * after / before;
    changes.emplace_back("training.gradient_accumulation_steps", std::to_string(steps * after / before));
  }
  if (!takes_micro_batches(recipe, job.ranks)) return std::nullopt;
  try {
    require_stages(recipe, job.ranks);
    Workload workload = job.with(std::move(recipe));
    Layout layout = layout_of(workload, job.ranks);
    return OtherMesh{std::move(workload), std::move(changes), std::move(layout)};
  } catch (const Error&) {
    return std::nullopt;  // the model cannot be cut like this, or keys exclude each other
  }
}

}  // namespace strata::runtime
