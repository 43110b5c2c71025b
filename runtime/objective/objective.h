#pragma once
// runtime/objective/ is what a run learns, a file per objective (causal_lm.h, masked_lm.h): the labels that it makes of
// tokens, and how many. The units that its model ends in are models/'. To add one: its name (models/objective.h), a
// file here and a line in objective.cc, a head in models/.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "runtime/data/labelling.h"
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
};

// Of training.objective, which is set.
MakeLabelling labelling_of(const Recipe& recipe);

// Before a run is planned: training.objective, if the recipe leaves it to the model. Throws Error{usage} if that names
// none that is built.
void settle_objective(Recipe& recipe);
// That, what the plan has to know of the objective, and settle_data().
void settle(Recipe& recipe, bool evaluates);

}  // namespace strata::runtime
