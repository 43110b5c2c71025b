#include "runtime/weights/tensor_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "models/files/safetensors.h"
#include "models/model.h"

namespace strata::runtime {

namespace {

// Finds a tensor by its name, or by its name in TensorFlow and the first BERT checkpoints. The vocabulary's bias has
// two names; if both exist, the decoder's is read, as in transformers 5.
class Names {
 public:
  explicit Names(std::span<const std::string> names) {
    for (std::size_t i = 0; i < names.size(); ++i) places_.emplace(names[i], i);
  }
  std::optional<std::size_t> find(const std::string& name) const {
    for (const auto& [older, of_decoder] : {std::pair{"cls.predictions.bias", "cls.predictions.decoder.bias"},
                                            {"lm_head.bias", "lm_head.decoder.bias"}}) {
      if (name != older && name != of_decoder) continue;
      for (const char* there : {of_decoder, older})
        if (const auto found = places_.find(there); found != places_.end()) return found->second;
    }
    if (const auto found = places_.find(name); found != places_.end()) return found->second;
    for (const auto& [now, then] : {std::pair{"LayerNorm.weight", "gamma"}, {"LayerNorm.bias", "beta"}}) {
      const std::string_view ending = now;
      if (!name.ends_with(ending)) continue;
      const auto found = places_.find(name.substr(0, name.size() - ending.size()) + "LayerNorm." + then);
      return found == places_.end() ? std::nullopt : std::optional(found->second);
    }
    return std::nullopt;
  }

 private:
  std::unordered_map<std::string_view, std::size_t> places_;
};

}  // namespace

std::optional<std::string> layer_of(std::string_view name, std::size_t dimensions) {
  constexpr std::string_view kWeight = ".weight";
  if (dimensions != 2 || !name.ends_with(kWeight)) return std::nullopt;
  return std::string(name.substr(0, name.size() - kWeight.size()));
}

std::string prefix_of_wrapper(std::span<const std::string> names, std::string_view wanted) {
  const std::string ending = "." + std::string(wanted);
  for (const std::string& name : names) {
    if (!name.ends_with(ending)) continue;
    std::string prefix = name.substr(0, name.size() - wanted.size());
    if (std::ranges::all_of(names, [&](const std::string& other) { return other.starts_with(prefix); })) return prefix;
  }
  return {};
}

TensorMatch match_tensors(const models::Model& model, std::span<const std::string> names, bool new_head) {
  const Names stored(names);
  const std::string head_prefix = new_head ? model.loss_unit().score_layer() + "." : "";
  const std::string& prefix = model.optional_prefix;
  const auto& may_lack = model.random_if_missing;
  const auto find_name = [&](const std::string& name) {
    const auto found = stored.find(name);
    return found || !name.starts_with(prefix) ? found : stored.find(name.substr(prefix.size()));
  };
  std::unordered_map<const models::Parameter*, const std::string*> other_names;  // of tables that a head shares
  for (const auto& unit : model.units)
    if (const auto& shared = unit->shared())
      other_names.emplace(&model.units[shared->unit]->parameters()[shared->parameter], &shared->name);
  std::vector<bool> wanted(names.size());
  TensorMatch out;
  for (const auto& unit : model.units) {
    auto& places = out.places.emplace_back();
    for (const models::Parameter& p : unit->parameters()) {
      auto found = find_name(p.name);
      // safetensors.torch.save_model() keeps only one name of a tied table, which may be the output layer's.
      if (const auto other = other_names.find(&p); !found && other != other_names.end())
        found = find_name(*other->second);
      if (found) wanted[*found] = true;
      const bool reinitialised = new_head && p.name.starts_with(head_prefix);
      places.push_back(reinitialised ? std::nullopt : found);
      if (places.back() || p.of_adapter) continue;
      const bool random = reinitialised || std::ranges::find(may_lack, p.name) != may_lack.end();
      (random ? out.initialised : out.missing).push_back(p.name);
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (wanted[i]) continue;
    const bool left_out = std::ranges::any_of(model.ignored_suffixes,
                                              [&](const std::string& suffix) { return names[i].ends_with(suffix); });
    (left_out ? out.left_out : out.unknown).push_back(i);
  }
  return out;
}

namespace {

using models::StoredTensor;

const StoredTensor* find(const models::Safetensors& file, const std::string& name, const std::string& optional_prefix) {
  if (const StoredTensor* found = file.find(name)) return found;
  return name.starts_with(optional_prefix) ? file.find(name.substr(optional_prefix.size())) : nullptr;
}

}  // namespace

void untie_if_different(models::Config& config, const std::filesystem::path& folder,
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
    config.add_note(fmt::format(
        "{}: {} differs from {}, though config.json ties the two: both are read and trained, as in transformers "
        "(tie_word_embeddings = false)",
        head->file.string(), head->name, table->name));
  } catch (const Error&) {
    return;
  }
}

std::string command_to_untie(const std::filesystem::path& folder, bool masked) {
  return python_command(
      fmt::format("import shutil, torch; from transformers import AutoModelFor{}LM as M; ",
                  masked ? "Masked" : "Causal") +
          "m = M.from_pretrained(argv[1], dtype='auto'); m.config.tie_word_embeddings = False; "
          "m.get_output_embeddings().weight = torch.nn.Parameter(m.get_input_embeddings().weight.clone()); "
          "shutil.copytree(argv[1], argv[2], ignore=shutil.ignore_patterns('*.safetensors*', '*.bin*', '*.pth', "
          "'checkpoint-*')); m.save_pretrained(argv[2])",
      {folder.string(), (folder / "").parent_path().string() + "-untied"});
}

std::string how_to_untie(const models::Model& model, const std::optional<std::filesystem::path>& folder) {
  const std::string by_key = "model.config.tie_word_embeddings = false";
  const auto& shared = model.units.back()->shared();
  if (!folder || !shared) return by_key;
  try {
    const models::Safetensors file = models::Safetensors::open(*folder);
    const std::string& table = model.units[shared->unit]->parameters()[shared->parameter].name;
    if (find(file, shared->name, "") && find(file, table, model.optional_prefix)) return by_key;
  } catch (const Error&) {  // a checkpoint, or files that the code which reads them reports
    return by_key;
  }
  return command_to_untie(*folder, model.objective == models::Objective::masked_lm);
}

}  // namespace strata::runtime
