#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::models {

class Config;

// The training objective: what a model learns to predict. It determines the units at the model's end.
enum class Objective : std::uint8_t { causal_lm, masked_lm, sequence_classification, token_classification };
std::string_view name_of(Objective objective);  // the value of training.objective

// The objective whose head `architectures` in config.json names ("BertForMaskedLM"); nullopt if it names a model
// without a head, or is missing. Throws Error{usage} for a head that no objective has.
std::optional<Objective> named_objective(const Config& config);
// named_objective(), or else the family's default objective. Throws Error{usage} for an unknown family.
Objective objective_of(const Config& config);
// True if the family predicts the next token. A row then depends only on the tokens up to it, and only the last row
// depends on the complete text. Throws like objective_of().
bool predicts_next(const Config& config);
// transformers' class for such a model: "BertForMaskedLM", "GPT2LMHeadModel".
std::string architecture_of(const Config& config, Objective objective);

}  // namespace strata::models
