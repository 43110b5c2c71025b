#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/ops/losses/losses.h"
#include "models/objective.h"

namespace strata::models {

class Config;

// The classes that config.json gives a model, as transformers reads them.
struct Classes {
  std::vector<std::string> names;  // from id2label, otherwise LABEL_0 and so on: num_labels of them, or two
  bool named = false;              // id2label has other names
  device::ClassTarget target = device::ClassTarget::one;
  bool counted = false;  // num_labels sets the number
};
// Strata's own key in config.json: an object that describes a classifier's training data, so that texts for predictions
// are tokenized in the same way (docs/formats.md, "Labels").
inline constexpr const char* kTrainedOn = "strata_trained_on";
// Strata's own problem_type for data without labels.
inline constexpr const char* kPrediction = "prediction";
// transformers' name of a class without a name, followed by its number.
inline constexpr std::string_view kNumberedLabel = "LABEL_";
// No classes for a language model, which ignores these keys. Throws Error{corrupt}, or Error{usage} for values from the
// recipe, if id2label does not count from 0, has two equal names, or disagrees with num_labels. Throws Error{usage} for
// an unknown problem_type.
Classes read_classes(const Config& config, Objective objective);

// True if the names are tags of entities in words: "O", and at least one "B-" or "I-" with the entity's type (Ramshaw
// and Marcus 1995).
bool are_entity_tags(std::span<const std::string> names);

}  // namespace strata::models
