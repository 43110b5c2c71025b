#pragma once
#include <string>

#include "models/files/config.h"
#include "runtime/data/files/token_sidecar.h"

namespace strata::launcher {

// For `strata inspect`, one line each, with its line break: what the labels of a token file are, and what a classifier
// tells apart and was trained on. Empty if there are no labels or the model is not a classifier. Throws what
// read_classes() throws.
std::string labels_line(const runtime::TokenSidecar::Labels& labels);
std::string classes_line(const models::Config& config);

}  // namespace strata::launcher
