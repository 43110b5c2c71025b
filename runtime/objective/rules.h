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

// For objectives that predict tokens: notes that labels of texts are ignored.
void look_for_labels(Workload& workload, const LabelColumn* of_validation);

inline Judged judged_by_tokens(const Workload&) {
  return Judged::tokens;
}

}  // namespace strata::runtime
