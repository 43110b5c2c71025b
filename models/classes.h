#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/ops/losses/class_loss.h"
#include "models/objective.h"

namespace strata::models {

class Config;

// The classes that config.json gives a model, as transformers reads them.
struct Classes {
  std::vector<std::string> names;  // of id2label, else LABEL_0 and so on, as many as num_labels says, else two
  bool named = false;              // whether id2label says other than that
  device::ClassTarget target = device::ClassTarget::one;
  bool counted = false;  // whether num_labels says how many there are
};
// A key of ours in config.json: an object that says what a classifier was trained on, so that predictions are made of
// the like (docs/formats.md, "Labels").
inline constexpr const char* kTrainedOn = "strata_trained_on";
// A problem_type of ours: there are no labels.
inline constexpr const char* kPrediction = "prediction";
// How transformers names a class that has no name, with its number after it.
inline constexpr std::string_view kNumberedLabel = "LABEL_";
// Throws Error{corrupt}, or Error{usage} for what the recipe gave, for an id2label that does not count from 0, names
// two classes alike, or names another number of classes than num_labels; Error{usage} for a problem_type that there is
// not.
Classes read_classes(const Config& config, Objective objective);

// Whether the names are tags of entities in words: "O", and "B-" and "I-" with the entity's type (Ramshaw and Marcus
// 1995), one of these at least.
bool are_entity_tags(std::span<const std::string> names);

}  // namespace strata::models
