#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::runtime {

// What an evaluation is of.
enum class Judged : std::uint8_t {
  tokens,     // a model that predicts tokens
  one_class,  // of each text or word
  entities,   // the same of words, whose classes are tags of entities
  many_classes,
  number
};

// A result of evaluations that evaluation.metric may name. What reports, checks and documents metrics reads this table.
struct EvaluationMetric {
  std::string_view name;
  bool greater_is_better;
  bool of_tokens, of_one_class, of_many_classes, of_numbers, of_entities;

  bool is_of(Judged judged) const;
};

// Throws nothing: the key's reader has refused other names.
const EvaluationMetric& metric_named(std::string_view name);
// Those of `judged`, eval_loss first; of all if nothing is given.
std::vector<std::string_view> metric_names();
std::vector<std::string_view> metric_names(Judged judged);

}  // namespace strata::runtime
