#pragma once
// runtime/objective/ defines what a run is trained to predict, with a source per objective (causal_lm.cc,
// masked_lm.cc): the labels that it makes from tokens, and their number (rules.h). The units at the end of its model
// are in models/. To add one: its name (models/objective.h), a file here, its rules in rules.h and a line in
// objective.cc, and a head in models/.

#include "runtime/data/open_data.h"
#include "runtime/data/sequences/sequences.h"
#include "runtime/plan/job.h"

namespace strata::runtime {

// The labelling for training.objective, which must be set. Null: each row predicts the next token. The workload must
// outlive it.
MakeLabelling labelling_of(const Workload& workload);
// True if a model trained on the recipe's objective continues a text.
bool generates(const Recipe& recipe);

// Called before a run is planned. Sets training.objective if the recipe leaves it to the model, and the settings of
// model and data that follow from the objective. Throws Error{usage} if the model names no supported one.
void resolve_objective(Workload& workload);
// Calls resolve_objective() and resolve_data(), and returns the opened data.
OpenedData resolve_workload(Workload& workload, bool evaluates);

}  // namespace strata::runtime
