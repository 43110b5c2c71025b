#include "launcher/train.h"

#include "device/error.h"
#include "runtime/recipe.h"

namespace strata::launcher {

int train(const TrainOptions& options) {
  const runtime::Recipe recipe = runtime::load_recipe(options.recipe, options.sets);
  runtime::require_trainable(recipe);
  fail(Exit::usage, "strata train is not built yet");
}

}  // namespace strata::launcher
