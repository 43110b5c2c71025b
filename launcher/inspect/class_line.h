#pragma once
#include <string>

#include "models/files/config.h"
#include "runtime/data/files/token_sidecar.h"

namespace strata::launcher {

// For `strata inspect`, a line each, with its end: what the labels beside a token file are, and what a model tells
// apart and was trained on. Empty if there are no labels, or the model is no classifier. Throws as read_classes().
std::string labels_line(const runtime::TokenSidecar::Labels& labels);
std::string classes_line(const models::Config& config);

}  // namespace strata::launcher
