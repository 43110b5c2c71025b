#include "runtime/weights/untie.h"

#include <fmt/format.h>

#include <string>

#include "base/error.h"
#include "base/shell_word.h"
#include "models/files/safetensors.h"
#include "models/model.h"

namespace strata::runtime {
namespace {

using models::StoredTensor;

const StoredTensor* find(const models::Safetensors& file, const std::string& name, const std::string& optional_prefix) {
  if (const StoredTensor* found = file.find(name)) return found;
  return name.starts_with(optional_prefix) ? file.find(name.substr(optional_prefix.size())) : nullptr;
}

}  // namespace

void untie_what_differs(models::Config& config, const std::filesystem::path& folder,
                        std::optional<models::Objective> objective) {
  try {
    const models::Config asked = config;  // a copy, because a Config records which of its keys a model reads
    models::RunShape shape{1, 1, device::DType::fp32, 1, false};
    shape.objective = objective;
    const auto model = models::make_model(asked, shape);
    const auto& shared = model->units.back()->shared();
    if (!shared) return;
    const std::string& table_name = model->units[shared->unit]->parameters()[shared->parameter].name;
    const models::Safetensors file = models::Safetensors::open(folder);
    const StoredTensor* const head = find(file, shared->name, "");
    const StoredTensor* const table = find(file, table_name, model->optional_prefix);
    // A different shape cannot be tied; the code that reads the tensor reports it.
    if (!head || !table || head->shape != table->shape || models::same_values(*head, *table)) return;
    config.override_key("tie_word_embeddings", "false");
    config.remark(fmt::format(
        "{}: {} differs from {}, though config.json ties the two: both are read and trained, as in transformers "
        "(tie_word_embeddings = false)",
        head->file.string(), head->name, table->name));
  } catch (const Error&) {
    return;
  }
}

std::string command_to_untie(const std::filesystem::path& folder) {
  return python_command(
      "import torch; from transformers import AutoModelForCausalLM as M; m = M.from_pretrained(argv[1], dtype='auto'); "
      "m.config.tie_word_embeddings = False; "
      "m.lm_head.weight = torch.nn.Parameter(m.get_input_embeddings().weight.clone()); m.save_pretrained(argv[2])",
      {folder.string(), (folder / "").parent_path().string() + "-untied"});
}

}  // namespace strata::runtime
