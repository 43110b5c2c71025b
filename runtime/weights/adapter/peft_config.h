#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "models/adapter.h"

namespace strata::runtime {

inline constexpr const char* kPeftConfigName = "adapter_config.json";

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

}  // namespace strata::runtime
