#include "models/classes.h"

#include <fmt/format.h>

#include "base/error.h"
#include "models/families/families.h"
#include "models/files/config.h"

namespace strata::models {

Classes read_classes(const Config& config, Objective objective) {
  constexpr std::size_t kMostClasses = std::size_t{1} << 16;
  Classes out;
  for (std::string key = "id2label.0"; config.has(key); key = fmt::format("id2label.{}", out.names.size())) {
    out.names.push_back(config.require_text(key));
    out.named = out.named || out.names.back() != fmt::format("LABEL_{}", out.names.size() - 1);
  }
  if (out.names.empty()) {
    const std::size_t count = config.has("num_labels") ? size_of_key(config, "num_labels", kMostClasses) : 2;
    for (std::size_t i = 0; i < count; ++i) out.names.push_back(fmt::format("LABEL_{}", i));
  }
  const std::string problem = config.text_or("problem_type", "");
  if (problem == "regression" || (problem.empty() && out.names.size() == 1))
    out.target = device::ClassTarget::number;
  else if (problem == kPrediction)
    out.target = device::ClassTarget::none;
  else if (problem == "multi_label_classification")
    out.target = device::ClassTarget::many;
  else if (!problem.empty() && problem != "single_label_classification")
    fail(Exit::usage, "{} is \"{}\": it is regression, single_label_classification or multi_label_classification",
         config.describe("problem_type"), problem);
  if (objective == Objective::token_classification && problem != kPrediction) out.target = device::ClassTarget::one;
  if (out.target == device::ClassTarget::number && out.names.size() > 1)
    fail(Exit::usage, "{} is \"regression\" with {} labels: one is built", config.describe("problem_type"),
         out.names.size());
  if (out.target == device::ClassTarget::many && out.names.size() > 31)
    fail(Exit::usage, "{} classes that a text may have any number of: at most 31 are built", out.names.size());
  return out;
}

}  // namespace strata::models
