#include "launcher/commands/predict/adapter_head.h"

#include <string>

#include "base/error.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/weights/adapter/peft_folder.h"

namespace strata::launcher {

std::optional<AdapterHead> head_of_adapter(const std::filesystem::path& folder) {
  runtime::require_peft(folder);
  const runtime::PeftConfig config = runtime::read_peft_config(folder);
  const models::Safetensors file = models::Safetensors::open(folder / runtime::kPeftWeightsName);
  for (const auto& tensor : file.tensors()) {
    const bool of_text = tensor.name.ends_with(".classifier.out_proj.weight");  // RoBERTa's, for whole texts only
    const bool scores =
        of_text || tensor.name.ends_with(".classifier.weight") || tensor.name.ends_with(".score.weight");
    if (!scores || tensor.shape.size() != 2) continue;
    const auto classes = static_cast<std::size_t>(tensor.shape[0]);
    if (of_text || config.task == "SEQ_CLS") return AdapterHead{models::Objective::sequence_classification, classes};
    if (config.task == "TOKEN_CLS") return AdapterHead{models::Objective::token_classification, classes};
    fail(Exit::usage,
         "{} has a layer of class scores ({}), and does not say whether it classifies texts or their words: set "
         "\"task_type\" there to \"SEQ_CLS\" or \"TOKEN_CLS\"",
         (folder / runtime::kPeftConfigName).string(), tensor.name);
  }
  return std::nullopt;
}

}  // namespace strata::launcher
