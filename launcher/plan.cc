#include "launcher/plan.h"

#include "device/error.h"
#include "runtime/recipe.h"

namespace strata::launcher {

int plan(const PlanOptions& options) {
  (void)runtime::load_recipe(options.recipe, options.sets);
  fail(Exit::usage, "strata plan is not built yet");
}

}  // namespace strata::launcher
