#pragma once
// runtime/objective/ defines what a run is trained to predict, with a source per objective (causal_lm.cc,
// masked_lm.cc): the labels that it makes from tokens, and their number (rules.h). The units at the end of its model
// are in models/. To add one: its name (models/objective.h), a file here, its rules in rules.h and a line in
// objective.cc, and a head in models/.

#include "models/objective.h"
#include "runtime/data/open_data.h"
#include "runtime/data/sequences/sequences.h"
#include "runtime/plan/job.h"

namespace strata::runtime {

// The labelling for the workload's objective, which must be known. Null: each row predicts the next token. The workload
// must outlive it.
MakeLabelling labelling_of(const Workload& workload);
// Whether a model trained on the objective continues a text.
bool generates(models::Objective objective);

// Called before a run is planned. Determines the objective if the recipe leaves it to the model, and what follows from
// it for model and data (Workload::resolved, Workload::data). Throws Error{usage} if the model's objective is not
// supported.
void resolve_objective(Workload& workload);
// Calls resolve_objective() and resolve_data(), and returns the opened data.
OpenedData resolve_workload(Workload& workload, bool evaluates);

}  // namespace strata::runtime
