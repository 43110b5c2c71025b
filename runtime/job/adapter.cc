#include "runtime/job/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "runtime/recipe/edits.h"

namespace strata::runtime {
namespace {

using models::ModuleNames;

constexpr std::size_t kNearest = 3, kMostLetters = 128;

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

// Returns the names with the fewest edits from `given`, each once.
std::string nearest(const std::vector<std::string>& names, const std::string& given) {
  const bool whole = given.find('.') != std::string::npos;
  std::vector<std::string> near;
  for (const std::string& name : names) {
    std::string text(whole ? std::string_view(name) : last_part(name));
    if (std::ranges::find(near, text) == near.end()) near.push_back(std::move(text));
  }
  const std::string letters = given.substr(0, kMostLetters);
  std::ranges::stable_sort(near, {}, [&](const std::string& name) { return edits(letters, name); });
  near.resize(std::min(near.size(), kNearest));
  return fmt::format("{}", fmt::join(near, ", "));
}

// The modules that have a weight: linear layers, and all others.
struct Modules {
  std::vector<std::string> linear, other;

  explicit Modules(const models::Model& model) {
    for (const auto& unit : model.units) {
      for (const auto& layer : unit->linear_layers()) linear.push_back(layer.name);
      for (const models::Parameter& parameter : unit->parameters()) add(parameter.name);
      if (unit->shared()) add(unit->shared()->name);
    }
  }

 private:
  void add(const std::string& tensor) {
    constexpr std::string_view kWeight = ".weight";
    if (!tensor.ends_with(kWeight) || tensor.ends_with(".lora_A.weight") || tensor.ends_with(".lora_B.weight")) return;
    std::string module = tensor.substr(0, tensor.size() - kWeight.size());
    if (std::ranges::find(linear, module) == linear.end()) other.push_back(std::move(module));
  }
};

void require_names(const models::Model& model, const Modules& modules, const models::Adapter& adapter, bool of_file) {
  const auto is_of = [](const ModuleNames& names) {
    return [&names](const std::string& module) { return models::matches(names, module); };
  };
  const auto refuse_other = [&](const ModuleNames& names, const std::string& given) {
    const auto other = std::ranges::find_if(modules.other, is_of(names));
    // A module that modules_to_save names gets no adapter, whatever else names it.
    if (other == modules.other.end() || models::is_saved_whole(adapter, *other + ".weight") ||
        models::matches(adapter.exclude_modules, *other))
      return;
    fail(Exit::usage,
         "adapter.target_modules: {} matches {}, which is not a linear layer inside the model and cannot have an "
         "adapter: train all of it (adapter.modules_to_save), or leave it out",
         given, *other);
  };
  const ModuleNames& targets = adapter.target_modules;
  if (targets.pattern && *targets.pattern != models::kAllLinear) {
    refuse_other(targets, *targets.pattern);
    if (std::ranges::none_of(modules.linear, is_of(targets)))
      fail(Exit::usage,
           "adapter.target_modules = {}: this matches the complete name of no linear layer of this {} model; the "
           "nearest are {}",
           *targets.pattern, model.family, nearest(modules.linear, *targets.pattern + "."));
  }
  for (const std::string& name : targets.names) {
    const ModuleNames one{{name}, {}};
    refuse_other(one, name);
    if (!of_file && std::ranges::none_of(modules.linear, is_of(one)))
      fail(Exit::usage, "adapter.target_modules: no linear layer of this {} model is called {}; the nearest are {}",
           model.family, name, nearest(modules.linear, name));
  }
}

void require_saved(const models::Model& model, const Modules& modules, const models::Adapter& adapter, bool of_file) {
  std::vector<std::string> all = modules.linear;
  all.insert(all.end(), modules.other.begin(), modules.other.end());
  for (const std::string& name : adapter.modules_to_save) {
    const models::Adapter one{.modules_to_save = {name}};
    const auto is_of = [&](const std::string& module) { return models::is_saved_whole(one, module + ".weight"); };
    for (const auto& unit : model.units) {
      const auto& shared = unit->shared();
      if (!shared) continue;
      const std::string& holder = model.units[shared->unit]->parameters()[shared->parameter].name;
      if (models::is_saved_whole(one, holder) || models::is_saved_whole(one, shared->name))
        fail(Exit::usage,
             "adapter.modules_to_save: {} matches {}, which is tied to {} (tie_word_embeddings): peft would train "
             "a copy of one of the two and transformers would tie them again when it reads the result; untie the model "
             "first (model.config.tie_word_embeddings = false)",
             name, holder, shared->name);
    }
    for (const auto& unit : model.units)
      for (const models::Parameter& p : unit->parameters())
        if (!p.trained() && models::is_saved_whole(one, p.name))
          fail(Exit::usage,
               "adapter.modules_to_save: {} matches {}, which the model's files store in 4 bits, so it cannot be "
               "trained: leave it out, or start from the original model",
               name, p.name);
    if (!of_file && std::ranges::none_of(all, is_of))
      fail(Exit::usage,
           "adapter.modules_to_save: no module of this {} model has a name that ends in {}; the nearest are {}",
           model.family, name, nearest(all, name));
  }
}

}  // namespace

void require_adaptable(const models::Model& model, const models::Adapter& adapter, bool of_file) {
  const Modules modules(model);
  require_names(model, modules, adapter, of_file);
  require_saved(model, modules, adapter, of_file);
  for (const auto& unit : model.units)
    for (const models::Parameter& p : unit->parameters()) {
      constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
      if (!p.of_adapter) continue;
      const bool of_a = p.name.ends_with(kA);
      const std::int64_t rank = p.shape[of_a ? 0 : 1], width = p.shape[of_a ? 1 : 0];
      if (rank > width)
        fail(Exit::usage,
             "the adapter's rank {} is above the width {} of {}: give a lower adapter.rank (or rank_pattern)", rank,
             width, p.name.substr(0, p.name.size() - (of_a ? kA : kB).size()));
    }
  const auto adapted = [](const auto& layer) { return layer.low_rank.rank > 0; };
  if (std::ranges::none_of(model.units,
                           [&](const auto& unit) { return std::ranges::any_of(unit->linear_layers(), adapted); }))
    fail(Exit::usage,
         "the adapter has no target left in this {} model: adapter.exclude_modules, modules_to_save or "
         "layers_to_transform leave all of them out",
         model.family);
}

}  // namespace strata::runtime
