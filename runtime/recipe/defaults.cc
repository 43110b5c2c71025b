#include "runtime/recipe/defaults.h"

namespace strata::runtime {

Recipe defaults_for(const Recipe& recipe) {
  Recipe out;
  if (recipe.model.path) out.model.init = Init::pretrained;
  if (recipe.optimizer.name == OptimizerName::lion) out.optimizer.betas = {0.9, 0.99};
  return out;
}

}  // namespace strata::runtime
