#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "runtime/data/sequences/labelling.h"
#include "runtime/plan/workload.h"
#include "runtime/recipe/evaluation_metric.h"

namespace strata::runtime {

// What an objective tells code that does not know objectives.
struct ObjectiveRules {
  // See MakeLabelling; null: each row predicts the next token. Throws Error{usage} if the files lack what the objective
  // needs.
  std::shared_ptr<Labelling> (*labelling)(const Workload& workload, std::span<const TokenFile> files,
                                          std::uint64_t stream);
  // The rows that enter the loss in a document of `rows` rows; nullopt: all of them.
  std::optional<std::uint32_t> (*loss_rows)(const Recipe& recipe, std::uint32_t rows);
  // data.packing = "auto" means documents if the token files say where documents begin.
  bool of_documents;
  // Whether models trained on it continue a text.
  bool generates;
  // What its evaluations measure, which decides their metrics.
  Judged (*judged)(const Workload& workload);
  // Called once the data are settled. Adds notes about parts of the data that are ignored or unexpected.
  // `of_validation`: the labels of the validation data, if the run evaluates and the files have labels; otherwise null.
  // Throws Error{usage} for what would end the run later.
  void (*look)(Workload& workload, const LabelColumn* of_validation);
};

// Causal language modelling: every row predicts the next token of its document.
extern const ObjectiveRules kCausalLm;
// Masked language modelling (Devlin et al. 2018). In each document, max(1, round(p n)) of the n eligible tokens are
// predicted: those with the smallest random numbers for seed, epoch and place. Of these, 80% are masked, 10% become a
// random token, and 10% stay. Special tokens, and those that the data's mask excludes, are never selected.
extern const ObjectiveRules kMaskedLm;
// A class, several classes or a number per document. The loss uses the row of the document's first token or, in
// families that predict the next token, of its last.
extern const ObjectiveRules kSequenceClassification;
// A class per word, at the word's first token.
extern const ObjectiveRules kTokenClassification;

// For objectives that predict tokens: notes that labels of texts are ignored.
void look_for_labels(Workload& workload, const LabelColumn* of_validation);

inline Judged judged_by_tokens(const Workload&) {
  return Judged::tokens;
}

}  // namespace strata::runtime
