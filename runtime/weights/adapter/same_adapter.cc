#include "runtime/weights/adapter/same_adapter.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/quote.h"
#include "models/model.h"
#include "runtime/recipe/keys.h"

namespace strata::runtime {
namespace {

// The maximum number of bytes of a key's value in a message.
constexpr std::size_t kMaxValueBytes = 160;

// Layers restrict a list of targets, not a pattern.
bool ignores_layers(const models::Adapter& adapter) {
  return !adapter.layers_to_transform.empty() && adapter.target_modules.pattern.has_value();
}

}  // namespace

bool is_same_adapter(const models::Config& config, std::optional<models::Objective> objective, const models::Adapter& a,
                     const models::Adapter& b) {
  const auto model_of = [&](const models::Adapter& adapter) {
    models::RunShape shape{1, 1, device::DType::fp32, 1, false};
    shape.objective = objective;
    shape.adapter = std::make_shared<const models::Adapter>(adapter);
    return models::make_model(models::Config(config), shape);
  };
  const auto one = model_of(a), other = model_of(b);
  const auto same_parameter = [](const models::Parameter& x, const models::Parameter& y) {
    return x.name == y.name && x.shape == y.shape && x.pool() == y.pool();
  };
  const auto same_layer = [](const auto& x, const auto& y) {
    return x.low_rank.rank == y.low_rank.rank && x.low_rank.scale == y.low_rank.scale &&
           x.low_rank.dora == y.low_rank.dora;
  };
  return std::ranges::equal(one->units, other->units, [&](const auto& x, const auto& y) {
    return std::ranges::equal(x->parameters(), y->parameters(), same_parameter) &&
           std::ranges::equal(x->linear_layers(), y->linear_layers(), same_layer);
  });
}

bool chooses_modules(std::string_view key) {
  constexpr std::string_view kKeys[] = {"adapter.target_modules", "adapter.exclude_modules", "adapter.modules_to_save",
                                        "adapter.layers_to_transform"};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

void require_listed_targets(const Recipe& recipe) {
  if (!ignores_layers(recipe.adapter.lora)) return;
  const auto text = [&](std::string_view name) { return excerpt(find_key(name)->text(recipe), kMaxValueBytes); };
  fail(Exit::usage,
       "adapter.layers_to_transform = {} needs a list of target modules, as in peft, but adapter.target_modules is {}: "
       "give names, such as [\"q_proj\", \"v_proj\"]",
       text("adapter.layers_to_transform"), text("adapter.target_modules"));
}

void require_same_adapter(const Recipe& recipe, const Recipe::AdapterKeys& said, const models::Config& config) {
  const auto gives = [&](std::string_view key) {
    return std::ranges::find(recipe.adapter.given, key) != recipe.adapter.given.end();
  };
  if (gives("adapter.target_modules")) require_listed_targets(recipe);
  models::Adapter chosen = said.lora;  // the folder's, with the modules that the recipe names
  if (gives("adapter.target_modules")) chosen.target_modules = recipe.adapter.lora.target_modules;
  if (gives("adapter.exclude_modules")) chosen.exclude_modules = recipe.adapter.lora.exclude_modules;
  if (gives("adapter.modules_to_save")) chosen.modules_to_save = recipe.adapter.lora.modules_to_save;
  if (gives("adapter.layers_to_transform")) chosen.layers_to_transform = recipe.adapter.lora.layers_to_transform;
  Recipe other;  // whose keys have texts to compare
  other.adapter = said;
  for (const RecipeKey& key : recipe_keys()) {
    if (!gives(key.name) || key.text(recipe) == key.text(other)) continue;
    if (chooses_modules(key.name) && !ignores_layers(chosen) &&
        is_same_adapter(config, recipe.training.objective, said.lora, chosen))
      continue;
    fail(Exit::usage, "{} = {}, but {} has {}: leave the key out to continue from that adapter", key.name,
         excerpt(key.text(recipe), kMaxValueBytes), said.path->string(), excerpt(key.text(other), kMaxValueBytes));
  }
}

}  // namespace strata::runtime
