#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/config.h"
#include "models/model.h"
#include "models/objective.h"

namespace strata::runtime {

// For each parameter of a model, the tensor of a file or checkpoint that it is read from.
struct TensorMatch {
  // Per unit and parameter, the index into the given names; nullopt: initialised at random, or missing.
  std::vector<std::vector<std::optional<std::size_t>>> places;
  // Parameters that are initialised at random: a head that is absent (Model::random_if_missing) or to be replaced.
  std::vector<std::string> initialised;
  std::vector<std::string> missing;   // required parameters that are absent
  std::vector<std::size_t> left_out;  // names that the objective does not use (Model::ignored_suffixes)
  std::vector<std::size_t> unknown;   // names that the model does not have
};

// The layer whose matrix a tensor is: "classifier" for classifier.weight; nullopt for any other tensor. Only these
// layers are worth reporting when they are left out: the rest are biases, masks and computed tables.
std::optional<std::string> layer_of(std::string_view name, std::size_t dimensions);

// `new_head`: the layer of the class scores is initialised at random even if it is stored.
TensorMatch match_tensors(const models::Model& model, std::span<const std::string> names, bool new_head);

// The prefix that a wrapper around the saved model left before every name, and before `wanted` in one of them:
// "module." of DistributedDataParallel, "_orig_mod." of torch.compile. Empty if there is none.
std::string prefix_of_wrapper(std::span<const std::string> names, std::string_view wanted);

// A model's folder may hold an output layer whose values differ from the token table that config.json ties it to. If
// so, sets tie_word_embeddings = false in `config`, with a note, because transformers 5 leaves such layers untied
// (tie_weights). Does nothing if a file is missing or invalid: the code that reads it reports that. Without an
// objective, the model's own is assumed.
void untie_if_different(models::Config& config, const std::filesystem::path& folder,
                        std::optional<models::Objective> objective);

// The command that saves a copy of a model's folder, tokenizer included, with an output layer of its own, which
// transformers reads too. `masked`: the model is an encoder for masked language modelling.
std::string command_to_untie(const std::filesystem::path& folder, bool masked = false);

// How to untie a model whose output layer shares its table: the key, or the command if the model's folder does not hold
// both. `folder`: the model's, if it has one.
std::string how_to_untie(const models::Model& model, const std::optional<std::filesystem::path>& folder);

}  // namespace strata::runtime
