#include "runtime/plan/job.h"

#include <utility>

namespace strata::runtime {

models::Config Workload::config() const {
  models::Config out = description;
  for (const auto& [key, json] : recipe.model.config) out.override_key(key, json);
  return out;
}

Workload Workload::with(Recipe other) const {
  return {std::move(other), description, data, nodes};
}

}  // namespace strata::runtime
