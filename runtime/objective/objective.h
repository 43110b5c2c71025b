#pragma once
// runtime/objective/ is what a run learns, a file per objective (causal_lm.h, masked_lm.h): the labels that it makes of
// tokens, and how many (rules.h). The units that its model ends in are models/'. To add one: its name
// (models/objective.h), a file here and a line in objective.cc, a head in models/.

#include "runtime/data/open_data.h"
#include "runtime/data/sequences/labelling.h"
#include "runtime/plan/workload.h"

namespace strata::runtime {

// Of training.objective, which is set; nothing: each row predicts the next token. The workload outlives it.
MakeLabelling labelling_of(const Workload& workload);
// Whether a model that learns it continues a text.
bool generates(const Recipe& recipe);

// Before a run is planned: training.objective, if the recipe leaves it to the model, and what the objective says of the
// model and of the data. Throws Error{usage} if the model names none that is built.
void settle_objective(Workload& workload);
// That and settle_data(), whose data it returns.
OpenedData settle(Workload& workload, bool evaluates);

}  // namespace strata::runtime
