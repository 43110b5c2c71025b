#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::models {

class Config;

// What a model learns, which decides the units that it ends in.
enum class Objective : std::uint8_t { causal_lm, masked_lm, sequence_classification, token_classification };
std::string_view name_of(Objective objective);  // as training.objective has it

// The objective whose head config.json's `architectures` name ("BertForMaskedLM"); nullopt if they name a model without
// a head, or nothing. Throws Error{usage} for a head that no objective has.
std::optional<Objective> named_objective(const Config& config);
// That, else what the family (`model_type`) is trained on first. Throws Error{usage} for another family.
Objective objective_of(const Config& config);
// Whether models of the family predict the next token, so that a row has read what comes before it alone: of a text its
// last row has read all. Throws as objective_of().
bool predicts_next(const Config& config);
// transformers' class of such a model: "BertForMaskedLM", "GPT2LMHeadModel".
std::string architecture_of(const Config& config, Objective objective);

}  // namespace strata::models
