#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "models/adapter.h"
#include "models/model.h"
#include "runtime/weights/adapter/peft_tensors.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// A LoRA folder as peft's save_pretrained writes it: adapter_config.json and adapter_model.safetensors.

// The content of a LoRA folder's adapter_config.json.
struct PeftConfig {
  models::Adapter adapter;
  std::string base, task = {};          // the base model's name or path, and task_type; empty if unknown
  bool input_major = false;             // targets include a Conv1D, as in GPT-2
  std::vector<std::string> notes = {};  // what was ignored, and what a continued training does differently from peft
};
// Throws Error{usage} naming a key whose mathematics is not supported, unless its value changes nothing; Error{corrupt}
// if the file is not an adapter_config.json. Every other key that is not known changes nothing, and a note names it.
PeftConfig read_peft_config(const std::filesystem::path& folder);
// adapter_config.json as peft writes it. `task`: "CAUSAL_LM" and so on; empty: none.
std::string peft_config_json(const PeftConfig& config, const std::string& task);

// Notes for the user: the parts of this adapter that llama.cpp and vLLM do not read.
std::vector<std::string> notes_of_readers(const models::Adapter& adapter);

// The weights of `base`, with those that the model's adapter trains (A, B and modules_to_save) read from the folder.
// Throws Error{usage} if the folder lacks one of them, has one in another shape, or has others, unless these are copies
// of the base's; `note` says that rounded copies are not read.
std::unique_ptr<WeightSource> peft_weights(std::unique_ptr<WeightSource> base, const std::filesystem::path& folder,
                                           const models::Model& model, const BaseAgain& again, const Note& note);

// Joins two sources: trained weights come from `trained`, frozen ones from `base`. initialised() names only frozen
// weights, and left_out() is base's.
std::unique_ptr<WeightSource> joined_weights(std::unique_ptr<WeightSource> base, std::unique_ptr<WeightSource> trained,
                                             const models::Model& model, WeightSource::Base wanted = {});
// The same weights, with the requirement that the base has the hash `wanted`.
std::unique_ptr<WeightSource> require_hash(std::unique_ptr<WeightSource> weights, WeightSource::Base wanted,
                                           const models::Model& model);

// Adds a note to the model's description that its Hugging Face directory also holds an adapter, which is not read.
void add_adapter_note(const models::Config& config, const std::filesystem::path& folder);

}  // namespace strata::runtime
