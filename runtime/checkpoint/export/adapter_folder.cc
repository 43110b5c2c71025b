#include "runtime/checkpoint/export/adapter_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/quote.h"
#include "models/classes.h"
#include "models/files/safetensors.h"
#include "models/objective.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/checkpoint/export/model_place.h"
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
    fail(Exit::usage, "{} has no {}: the download is incomplete, or the run that saves it has not finished",
         folder.string(), kPeftWeightsName);
  fail(Exit::usage,
       "{} contains its weights as a pickle ({}), which can run code when it is loaded: convert it once: {}",
       folder.string(), pickle.filename().string(),
       python_command("import torch; from safetensors.torch import save_file; "
                      "save_file(torch.load(argv[1], weights_only=True), argv[2])",
                      {pickle.string(), weights.string()}));
}

// The classification head that an adapter's files contain, for a base model that is not a classifier.
struct AdapterHead {
  models::Objective objective{};
  std::size_t classes = 0;
};
// nullopt: the adapter has no such head. Throws Error{usage} if it is not a peft folder, or does not say what is
// classified.
std::optional<AdapterHead> head_of_adapter(const fs::path& folder) {
  require_peft(folder);
  const PeftConfig config = read_peft_config(folder);
  const models::Safetensors file = models::Safetensors::open(folder / kPeftWeightsName);
  for (const auto& tensor : file.tensors()) {
    const bool of_text = tensor.name.ends_with(".classifier.out_proj.weight");  // RoBERTa's, for whole texts only
    const bool scores =
        of_text || tensor.name.ends_with(".classifier.weight") || tensor.name.ends_with(".score.weight");
    if (!scores || tensor.shape.size() != 2) continue;
    const auto classes = static_cast<std::size_t>(tensor.shape[0]);
    if (of_text || config.task == "SEQ_CLS") return AdapterHead{models::Objective::sequence_classification, classes};
    if (config.task == "TOKEN_CLS") return AdapterHead{models::Objective::token_classification, classes};
    fail(Exit::usage,
         "{} does not say whether the adapter's classification head, {}, classifies texts or their words: set "
         "\"task_type\" there to \"SEQ_CLS\" or \"TOKEN_CLS\"",
         (folder / kPeftConfigName).string(), tensor.name);
  }
  return std::nullopt;
}

// The folder at the base's path, relative to the adapter's folder.
std::optional<fs::path> base_relative_to(const fs::path& adapter, const fs::path& base) {
  fs::path other = (adapter / base).lexically_normal();
  if (base.is_relative() && type_at(other) == fs::file_type::directory) return other;
  return std::nullopt;
}

// The folder that an adapter names as its base model, at this path, as in peft, or relative to the adapter's.
std::optional<fs::path> folder_of_base(const fs::path& adapter, const fs::path& base) {
  if (base.empty()) return std::nullopt;
  if (type_at(base) == fs::file_type::directory) return base;
  return base_relative_to(adapter, base);
}

std::string model_type_of(const fs::path& folder) {
  try {
    return models::Config::read(folder).text_or("model_type", "");
  } catch (const Error&) {
    return {};
  }
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
    fail(Exit::usage,
         "there is no folder {}: adapter.path (--adapter) takes a folder with {} and {}, as peft saves an adapter",
         path.string(), kPeftConfigName, kPeftWeightsName);
  if (type_at(path) != fs::file_type::directory)
    fail(Exit::usage, "{} is a file: adapter.path (--adapter) takes the folder with {} and {}", path.string(),
         kPeftConfigName, kPeftWeightsName);
  if (runtime::is_checkpoint(path) || !list_checkpoints(path).empty())
    fail(Exit::usage,
         "{} holds a checkpoint, but adapter.path (--adapter) takes a peft folder: leave it out, because a checkpoint "
         "already includes its adapter, or write a peft folder with strata export {} -o FOLDER --adapter",
         path.string(), folder);
  if (type_at(path / "config.json") != fs::file_type::not_found)
    fail(Exit::usage,
         "{} holds a whole model (config.json) but no adapter ({}): give it as model.path, without adapter.path "
         "(--adapter)",
         path.string(), kPeftConfigName);
  constexpr std::string_view kFiles[] = {kPeftConfigName};
  if (const auto inside = subfolder_with(kFiles, path))
    fail(Exit::usage, "{} holds no {}, but {} holds one: give that", path.string(), kPeftConfigName, inside->string());
  fail(Exit::usage, "{} holds no {}: adapter.path (--adapter) takes a folder to which peft saved an adapter",
       path.string(), kPeftConfigName);
}

void require_peft(const fs::path& folder) {
  require_peft_folder(folder);
  require_peft_weights(folder);
}

std::optional<fs::path> base_folder_of(const fs::path& model) {
  const auto has = [&](const char* file) { return type_at(model / file) != fs::file_type::not_found; };
  if (!has(kPeftConfigName) || has("config.json") || is_checkpoint(model)) return std::nullopt;
  return folder_of_base(model, read_peft_config(model).base);
}

std::string note_of_base(const fs::path& adapter, const fs::path& base) {
  std::string out = fmt::format("{} is an adapter: it is read with its base model, {} (base_model_name_or_path)",
                                adapter.string(), base.string());
  std::error_code ignored;
  if (const auto other = base_relative_to(adapter, base);
      other && base == base_of_adapter(adapter) && !fs::equivalent(*other, base, ignored))
    out += fmt::format(
        " in the current folder, where peft looks, and not with {}: write the complete path of the right one to {}",
        other->string(), (adapter / kPeftConfigName).string());
  return out;
}

std::string note_of_other_base(const fs::path& adapter, const fs::path& given, const fs::path& opened,
                               const models::Config& model) {
  std::optional<fs::path> base;
  try {
    base = folder_of_base(adapter, base_of_adapter(adapter));
  } catch (const Error&) {
    // The path leads through a folder of another user.
  }
  std::error_code ignored;
  if (!base || fs::equivalent(*base, given, ignored) || fs::equivalent(*base, opened, ignored)) return {};
  const std::string type = model_type_of(*base), used = model.text_or("model_type", "");
  const bool differ = !type.empty() && type != used;
  return fmt::format(
      "{} was trained on {}{} (base_model_name_or_path), but is used with {}{}: give the former, unless the "
      "two have the same weights",
      adapter.string(), base->string(), differ ? fmt::format(", whose model_type is {},", type) : "", given.string(),
      differ ? fmt::format(", whose model_type is {}", used) : "");
}

std::optional<fs::path> base_of_recipe(const Recipe& recipe) {
  if (!recipe.model.path || recipe.adapter.path || recipe.model.init != Init::pretrained) return std::nullopt;
  auto base = base_folder_of(*recipe.model.path);
  const bool named = std::ranges::find(recipe.adapter.given, "adapter.kind") != recipe.adapter.given.end();
  if (base && named && recipe.adapter.kind == AdapterKind::none)
    fail(
        Exit::usage,
        "adapter.kind = \"none\" and model.path = {} contradict each other: the folder holds an adapter, which is read "
        "with its base model; leave adapter.kind out, give the base model alone ({}), or merge first: strata export "
        "{} -o MODEL",
        recipe.model.path->string(), base->string(), shell_word(recipe.model.path->string()));
  return base;
}

std::vector<std::string> keys_of_head(const models::Config& base, const fs::path& adapter) {
  const auto named = models::named_objective(base);
  if (named == models::Objective::sequence_classification || named == models::Objective::token_classification)
    return {};
  const auto head = head_of_adapter(adapter);
  if (!head) return {};
  std::vector<std::string> keys = {fmt::format("training.objective={}", models::name_of(head->objective))};
  if (models::read_classes(base, head->objective).names.size() != head->classes)
    keys.insert(keys.end(), {"model.config.id2label=null", fmt::format("model.config.num_labels={}", head->classes)});
  return keys;
}

PeftKeys read_peft_keys(const Recipe& recipe, const fs::path& folder, const models::Config& model) {
  require_peft_folder(folder);
  PeftConfig config = read_peft_config(folder);
  const Recipe::AdapterKeys said{AdapterKind::lora, std::move(config.adapter), folder, {}};
  require_same_adapter(recipe, said, model);
  return {said, std::move(config.notes)};
}

}  // namespace strata::runtime
