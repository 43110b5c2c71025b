#include "models/objective.h"

#include <array>
#include <string>
#include <utility>

#include "base/error.h"
#include "models/files/config.h"

namespace strata::models {

std::string_view name_of(Objective objective) {
  static constexpr std::array<std::string_view, 4> kNames = {"causal_lm", "masked_lm", "sequence_classification",
                                                             "token_classification"};
  return kNames[static_cast<std::size_t>(objective)];
}

std::optional<Objective> named_objective(const Config& config) {
  static constexpr std::array<std::pair<std::string_view, Objective>, 6> kSuffixes = {{
      {"ForCausalLM", Objective::causal_lm},
      {"LMHeadModel", Objective::causal_lm},
      {"ForMaskedLM", Objective::masked_lm},
      {"ForPreTraining", Objective::masked_lm},
      {"ForSequenceClassification", Objective::sequence_classification},
      {"ForTokenClassification", Objective::token_classification},
  }};
  for (const std::string& name : config.texts("architectures"))
    for (const auto& [suffix, objective] : kSuffixes)
      if (name.ends_with(suffix)) return objective;
  for (const std::string& name : config.texts("architectures"))
    if (name.find("For") != std::string::npos)
      fail(Exit::usage, "{} names {}, whose head is not supported: choose a supported one with training.objective",
           config.describe("architectures"), name);
  return std::nullopt;
}

}  // namespace strata::models
