#pragma once
// runtime/objective/ is what a run learns, a file per objective (causal_lm.h, masked_lm.h): the labels that it makes of
// tokens, and how many (rules.h). The units that its model ends in are models/'. To add one: its name
// (models/objective.h), a file here and a line in objective.cc, a head in models/.

#include "runtime/data/open_data.h"
#include "runtime/data/sequences/labelling.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Of training.objective, which is set; nothing: each row predicts the next token.
MakeLabelling labelling_of(const Recipe& recipe);
// Whether a model that learns it continues a text.
bool generates(const Recipe& recipe);

// Before a run is planned: training.objective, if the recipe leaves it to the model. Throws Error{usage} if that names
// none that is built.
void settle_objective(Recipe& recipe);
// That, what the plan has to know of the objective, and settle_data(), whose data it returns.
OpenedData settle(Recipe& recipe, bool evaluates);

}  // namespace strata::runtime
