#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/data/sequences/labelling.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What an objective says to those who know no objective.
struct ObjectiveRules {
  // As MakeLabelling. Throws Error{usage} if these files do not teach it.
  std::shared_ptr<const Labelling> (*labelling)(const Recipe& recipe, std::span<const TokenFile> files,
                                                std::uint64_t stream);
  // Rows of a document of `rows` rows that the loss takes; nullopt: it is computed of all.
  std::optional<std::uint32_t> (*loss_rows)(const Recipe& recipe, std::uint32_t rows);
  // data.packing = "auto" means documents, if the token files say where they begin.
  bool of_documents;
  // Whether its models continue a text.
  bool generates;
  // The metrics that its evaluations have besides eval_loss.
  std::span<const std::string_view> (*metrics)(const Recipe& recipe);
  // Once the data are settled: adds to recipe.notes what of them is left alone, or is not as it should be. Throws
  // Error{usage} for what would end the run later.
  void (*look)(Recipe& recipe);
};

// Of an objective that predicts tokens: labels of texts are left alone.
void look_for_labels(Recipe& recipe);

// Of an objective whose evaluations have a loss alone.
inline std::span<const std::string_view> no_metrics(const Recipe&) {
  return {};
}

}  // namespace strata::runtime
