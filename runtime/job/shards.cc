#include "runtime/job/shards.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace strata::runtime {

void require_shards(const Recipe& recipe) {
  const auto refuse = [&](std::string_view what) {
    fail(Exit::usage, "parallel.tensor_shards = {} does not support {} in this version: leave one of the two out",
         recipe.parallel.shards(), what);
  };
  if (recipe.adapter.kind != AdapterKind::none) refuse("adapters (adapter.kind)");
  if (recipe.model.quantised()) refuse("quantised weights (model.frozen_format)");
  if (recipe.evaluation.prompts) refuse("answers to prompts while it trains (evaluation.prompts)");
}

void require_in_shards(const models::Model& model, std::size_t shards) {
  const bool cut = std::ranges::any_of(model.units, [](const auto& unit) {
    return std::ranges::any_of(unit->parameters(), [](const models::Parameter& p) { return p.slice.shards > 1; });
  });
  if (!cut)
    fail(Exit::usage, "parallel.tensor_shards = {} does not support {} models in this version: leave it out", shards,
         model.family);
}

}  // namespace strata::runtime
