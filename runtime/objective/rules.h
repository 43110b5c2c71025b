#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "runtime/data/sequences/labelling.h"
#include "runtime/plan/workload.h"
#include "runtime/recipe/evaluation_metric.h"

namespace strata::runtime {

// What an objective says to those who know no objective.
struct ObjectiveRules {
  // As MakeLabelling; null: each row predicts the next token. Throws Error{usage} if these files do not teach it.
  std::shared_ptr<Labelling> (*labelling)(const Workload& workload, std::span<const TokenFile> files,
                                          std::uint64_t stream);
  // Rows of a document of `rows` rows that the loss takes; nullopt: it is computed of all.
  std::optional<std::uint32_t> (*loss_rows)(const Recipe& recipe, std::uint32_t rows);
  // data.packing = "auto" means documents, if the token files say where they begin.
  bool of_documents;
  // Whether its models continue a text.
  bool generates;
  // What its evaluations are of, which says what metrics they have.
  Judged (*judged)(const Workload& workload);
  // Once the data are settled: adds to their notes what of them is left alone, or is not as it should be.
  // of_validation: the labels of the validation data, if the run evaluates and they came with the files; else null.
  // Throws Error{usage} for what would end the run later.
  void (*look)(Workload& workload, const LabelColumn* of_validation);
};

// Of an objective that predicts tokens: labels of texts are left alone.
void look_for_labels(Workload& workload, const LabelColumn* of_validation);

inline Judged judged_by_tokens(const Workload&) {
  return Judged::tokens;
}

}  // namespace strata::runtime
