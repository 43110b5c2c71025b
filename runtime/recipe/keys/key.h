#pragma once
// runtime/recipe/keys/ defines the keys of a recipe: a row per key, a file per group of sections. ../keys.h is the
// table of all of them.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/recipe/recipe.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {

// A key of the recipe: where it is stored, which values are allowed, and what it means. This table is the only
// definition; the loader, to_text() and docs/recipe.md read it.
struct RecipeKey {
  std::string name;     // "training.precision"
  std::string allowed;  // "\"fp32\", \"bf16\" or \"fp16\""
  std::string meaning;
  // Stores the value, with relative paths resolved from `folder`. False if the value does not satisfy `allowed`.
  std::function<bool(Recipe&, const RecipeValue&, const std::filesystem::path& folder)> set;
  // The value in canonical form; "none" if it is not set.
  std::function<std::string(const Recipe&)> text;
  // The maximum of a number or size, if it is far beyond any sensible value and `allowed` therefore does not mention
  // it.
  struct Most {
    double value = 0;
    std::string text;
  };
  std::optional<Most> most = {};
};

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

// parallel_keys.cc: how the model and its state are split over ranks, and the memory that holds the state.
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
