#include "runtime/checkpoint/export/adapter_folder.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/quote.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/weights/adapter/peft_folder.h"
#include "runtime/weights/adapter/same_adapter.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// Throws Error{usage} if the folder of an adapter has no safetensors.
void require_peft_weights(const fs::path& folder) {
  const fs::path weights = folder / kPeftWeightsName, pickle = folder / "adapter_model.bin";
  refuse_broken_link(weights);
  if (type_at(weights) != fs::file_type::not_found) return;
  if (type_at(pickle) == fs::file_type::not_found)
    fail(Exit::usage, "{} has no {}: the download is incomplete, or the run that saves it is not done", folder.string(),
         kPeftWeightsName);
  fail(Exit::usage, "{} contains its weights as pickle ({}), which can run code when it is read; convert them once: {}",
       folder.string(), pickle.filename().string(),
       python_command("import torch; from safetensors.torch import save_file; "
                      "save_file(torch.load(argv[1], weights_only=True), argv[2])",
                      {pickle.string(), weights.string()}));
}

}  // namespace

std::string base_of_adapter(const fs::path& folder) {
  try {
    return read_peft_config(folder).base;
  } catch (const Error&) {
    return {};
  }
}

void require_peft_folder(const fs::path& path) {
  if (type_at(path / kPeftConfigName) != fs::file_type::not_found) return;
  const std::string folder = shell_word(path.string());
  if (type_at(path) == fs::file_type::not_found)
    fail(Exit::usage, "there is no folder {}: adapter.path (--adapter) is one with {} and {}, as peft saves an adapter",
         path.string(), kPeftConfigName, kPeftWeightsName);
  if (type_at(path) != fs::file_type::directory)
    fail(Exit::usage, "{} is a file: adapter.path (--adapter) is the folder with {} and {}", path.string(),
         kPeftConfigName, kPeftWeightsName);
  if (runtime::is_checkpoint(path) || !list_checkpoints(path).empty())
    fail(
        Exit::usage,
        "{} holds a checkpoint, and adapter.path (--adapter) is a folder of peft's: a checkpoint runs with its adapter "
        "by itself, without --adapter, and strata export {} -o FOLDER --adapter writes peft's folder of one",
        path.string(), folder);
  if (type_at(path / "config.json") != fs::file_type::not_found)
    fail(Exit::usage,
         "{} holds a whole model (config.json) and no adapter ({}): give it as model.path, without adapter.path "
         "(--adapter)",
         path.string(), kPeftConfigName);
  fail(Exit::usage, "{} holds no {}: adapter.path (--adapter) is a folder that peft saved an adapter to", path.string(),
       kPeftConfigName);
}

void require_peft(const fs::path& folder) {
  require_peft_folder(folder);
  require_peft_weights(folder);
}

std::string take_base(Recipe& recipe) {
  if (!recipe.model.path || recipe.adapter.path || recipe.model.init != Init::pretrained) return {};
  const fs::path folder = *recipe.model.path;
  const auto has = [&](const char* file) { return type_at(folder / file) != fs::file_type::not_found; };
  if (!has(kPeftConfigName) || has("config.json") || is_checkpoint(folder)) return {};
  const fs::path base = read_peft_config(folder).base;
  if (base.empty() || type_at(base) != fs::file_type::directory) return {};
  recipe.adapter.path = folder;
  recipe.model.path = base;
  return fmt::format("model.path = {} is an adapter: it is read with its base model, {} (base_model_name_or_path)",
                     folder.string(), base.string());
}

std::vector<std::string> take_peft_keys(Recipe& recipe, const models::Config& model) {
  const fs::path path = *recipe.adapter.path;
  require_peft_folder(path);
  Recipe said;
  said.adapter.kind = AdapterKind::lora;
  PeftConfig config = read_peft_config(path);
  said.adapter.lora = std::move(config.adapter);
  said.adapter.path = path;
  said.adapter.given = recipe.adapter.given;
  said.adapter.replaced = recipe.adapter.replaced;
  require_same_adapter(recipe, said, model);
  recipe.adapter = std::move(said.adapter);
  return std::move(config.notes);
}

}  // namespace strata::runtime
