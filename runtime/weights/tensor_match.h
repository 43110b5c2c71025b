#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace strata::runtime {

// Which of the tensors that a file or a checkpoint holds each parameter of a model is read from.
struct TensorMatch {
  // By unit and parameter, among the names given; nullopt: the parameter is drawn, or missing.
  std::vector<std::vector<std::optional<std::size_t>>> places;
  // Parameters that are drawn: those of a head that is not there (Model::drawn_if_missing), or that is to be new.
  std::vector<std::string> drawn;
  std::vector<std::string> missing;   // parameters that have to be there, and are not
  std::vector<std::size_t> left_out;  // names of what the objective makes no use of (Model::ignored_suffixes)
  std::vector<std::size_t> unknown;   // names that are none of this model's
};

// The layer whose matrix a tensor is, "classifier" of classifier.weight; nullopt: another tensor. Of what is left out
// these are what was learnt: the rest are their biases, masks, and tables that are computed.
std::optional<std::string> layer_of(std::string_view name, std::size_t dimensions);

// new_head: the layer of the classes' scores is drawn, whatever is there.
TensorMatch match_tensors(const models::Model& model, std::span<const std::string> names, bool new_head);

}  // namespace strata::runtime
