#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "models/adapter.h"
#include "models/model.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// A folder as peft's save_pretrained writes it for LoRA: adapter_config.json and adapter_model.safetensors.
inline constexpr const char* kPeftConfigName = "adapter_config.json";
inline constexpr const char* kPeftWeightsName = "adapter_model.safetensors";
// What stands before a tensor's name of the model in peft's files.
inline constexpr const char* kPeftPrefix = "base_model.model.";

struct PeftConfig {
  models::Adapter adapter;
  std::string base;          // the model's name or path; empty: it has none
  bool input_major = false;  // a target is a Conv1D, as GPT-2's
};
// Throws Error{usage} for a key that is not at its default and that is not supported, by its name; Error{corrupt} for
// what is no such file.
PeftConfig read_peft_config(const std::filesystem::path& folder);
// As peft writes it. task: "CAUSAL_LM" and so on; empty: none.
std::string peft_config_json(const PeftConfig& config, const std::string& task);

// The weights of `base`, and of the folder those that the model's adapter trains: A, B, and what is saved whole. Throws
// Error{usage} if it lacks one of them, has others, or another shape.
std::unique_ptr<WeightSource> peft_weights(std::unique_ptr<WeightSource> base, const std::filesystem::path& folder,
                                           const models::Model& model);

// Two sources as one: what the model trains, and what is frozen. The names that `base` draws and lacks are told.
std::unique_ptr<WeightSource> joined_weights(std::unique_ptr<WeightSource> base, std::unique_ptr<WeightSource> trained,
                                             const models::Model& model, WeightSource::Base wanted = {});
// The same weights, of which the base has to have a hash.
std::unique_ptr<WeightSource> require_hash(std::unique_ptr<WeightSource> weights, WeightSource::Base wanted,
                                           const models::Model& model);

}  // namespace strata::runtime
