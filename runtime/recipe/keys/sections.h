#pragma once
#include <vector>

#include "runtime/recipe/keys/key.h"

namespace strata::runtime {

// The sections of a recipe: the keys of each, in the order in which they are printed.

// data_keys.cc: the model, and the data that it is trained on.
std::vector<RecipeKey> model_keys();
std::vector<RecipeKey> data_keys();

// training_keys.cc: what is trained, and how a step updates the parameters.
std::vector<RecipeKey> training_keys();
std::vector<RecipeKey> optimizer_keys();
std::vector<RecipeKey> scheduler_keys();
std::vector<RecipeKey> fp16_keys();

// adapter_keys.cc: the adapter that is trained on top of a frozen model.
std::vector<RecipeKey> adapter_keys();

// parallel_keys.cc: how the model and its state are split over ranks, and in which memory the state is.
std::vector<RecipeKey> parallel_keys();
std::vector<RecipeKey> zero_keys();

// machine_keys.cc: how much memory there is, what computes, and what connects the ranks.
std::vector<RecipeKey> memory_keys();
std::vector<RecipeKey> device_keys();
std::vector<RecipeKey> comm_keys();

// checkpoint_keys.cc: what a run saves, and how it is evaluated during training.
std::vector<RecipeKey> checkpoint_keys();
std::vector<RecipeKey> evaluation_keys();

// control_keys.cc: how a run is observed and controlled from outside.
std::vector<RecipeKey> control_keys();

// report_keys.cc: what a run writes about itself.
std::vector<RecipeKey> report_keys();

}  // namespace strata::runtime
