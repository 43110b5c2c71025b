#include "runtime/job/shards.h"

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

}  // namespace strata::runtime
