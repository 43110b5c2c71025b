#pragma once
#include <cstddef>
#include <string>
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
};
// A problem_type of ours: there are no labels.
inline constexpr const char* kPrediction = "prediction";
// Throws Error{usage} for an id2label that does not count from 0, and a problem_type that there is not.
Classes read_classes(const Config& config, Objective objective);

}  // namespace strata::models
