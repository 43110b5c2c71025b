#include "runtime/plan/job.h"

namespace strata::runtime {
namespace {

// `resolved` replaces values of the same key. Values inside another key sort after it, so they are kept.
std::map<std::string, std::string> overrides_of(const Recipe::Model& model, const Resolved& resolved) {
  std::map<std::string, std::string> out = resolved.config;
  out.insert(model.config.begin(), model.config.end());
  return out;
}

Recipe::Model complete_model(const Recipe::Model& model, const Resolved& resolved) {
  Recipe::Model out = model;
  if (resolved.base) out.path = resolved.base;
  out.config = overrides_of(model, resolved);
  if (resolved.adapter && resolved.adapter->of_checkpoint) {
    out.frozen_format = resolved.adapter->of_checkpoint->format;
    out.double_quant = resolved.adapter->of_checkpoint->double_quant;
  }
  return out;
}

}  // namespace

models::Config Workload::config() const {
  models::Config out = description;
  for (const auto& [key, json] : overrides_of(recipe.model, resolved)) out.override_key(key, json);
  return out;
}

std::optional<device::StorageFormat> Workload::quantised() const {
  return complete_model(recipe.model, resolved).quantised();
}

std::size_t Workload::shards() const {
  const Recipe::Parallel& parallel = recipe.parallel;
  if (parallel.tensor_shards || !resolved.tensor_shards) return parallel.shards();
  return static_cast<std::size_t>(*resolved.tensor_shards);
}

Recipe Workload::complete_recipe() const {
  Recipe out = recipe;
  out.model = complete_model(recipe.model, resolved);
  out.adapter = adapter();
  out.training.objective = objective();
  out.data.packing = packing();
  if (!out.parallel.tensor_shards) out.parallel.tensor_shards = resolved.tensor_shards;
  return out;
}

}  // namespace strata::runtime
