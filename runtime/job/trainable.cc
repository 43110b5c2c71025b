#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "device/numeric/nf4.h"
#include "models/layers/linear/split_linear.h"
#include "runtime/job/requirements.h"
#include "runtime/recipe/names/names_elsewhere.h"
#include "runtime/weights/tensor_match.h"

namespace strata::runtime {
namespace {

using models::ModuleNames;

constexpr std::size_t kNearest = 3, kMaxLetters = 128;

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

// The names with the fewest edits from `letters`, as a list.
std::string nearest_of(std::vector<std::string> names, const std::string& letters) {
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return edits(letters, name); });
  names.resize(std::min(names.size(), kNearest));
  return fmt::format("{}", fmt::join(names, ", "));
}

// Returns the modules with the names nearest to `given`, each once.
std::string nearest(const std::vector<std::string>& names, const std::string& given) {
  const bool whole = given.find('.') != std::string::npos;
  std::vector<std::string> near;
  for (const std::string& name : names) {
    std::string text(whole ? std::string_view(name) : last_part(name));
    if (std::ranges::find(near, text) == near.end()) near.push_back(std::move(text));
  }
  return nearest_of(std::move(near), given.substr(0, kMaxLetters));
}

// Returns the tensors with the names nearest to a pattern: for a glob, globs of these tensors in all layers. The glob
// may lack the beginning or the end of their names, such as "transformer." or ".weight".
std::string nearest_tensors(const std::vector<std::string>& names, const std::string& pattern) {
  const std::string given = pattern.substr(0, kMaxLetters);
  if (given.find_first_of("*?[") == std::string::npos) return nearest_of(names, given);
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::string>> by_edits;
  for (const std::string& name : names)
    by_edits[{edits_of_glob("*" + given + "*", name), edits_of_glob(given, name)}].push_back(
        models::glob_of_layers(name));
  std::vector<std::string> near;
  for (auto& [count, globs] : by_edits)
    for (std::string& glob : globs)
      if (near.size() < kNearest && std::ranges::find(near, glob) == near.end()) near.push_back(std::move(glob));
  return fmt::format("{}", fmt::join(near, ", "));
}

// The modules that have a weight: linear layers, and all others.
struct Modules {
  std::vector<std::string> linear, adapted, other;

  explicit Modules(const models::Model& model) {
    for (const auto& unit : model.units) {
      for (const auto& layer : unit->linear_layers()) {
        linear.push_back(layer.name);
        if (layer.low_rank.rank > 0) adapted.push_back(layer.name);
      }
      for (const models::Parameter& parameter : unit->parameters()) add(parameter.name);
      if (unit->shared()) add(unit->shared()->name);
    }
  }
  std::vector<std::string> all() const {
    std::vector<std::string> out = linear;
    out.insert(out.end(), other.begin(), other.end());
    return out;
  }

 private:
  void add(const std::string& tensor) {
    constexpr std::string_view kWeight = ".weight";
    if (!tensor.ends_with(kWeight) || tensor.ends_with(".lora_A.weight") || tensor.ends_with(".lora_B.weight")) return;
    std::string module = tensor.substr(0, tensor.size() - kWeight.size());
    if (std::ranges::find(linear, module) == linear.end()) other.push_back(std::move(module));
  }
};

using Folder = std::optional<std::filesystem::path>;

// Throws if a pattern that matches nothing lists the ends of modules' names, as a shell passes them: "q_proj",
// "q_proj,v_proj".
void require_no_names(const std::vector<std::string>& modules, std::string_view key, const std::string& pattern) {
  std::vector<std::string> names;
  for (std::size_t at = 0; (at = pattern.find_first_not_of(", ", at)) != std::string::npos;) {
    const std::size_t end = std::min(pattern.find_first_of(", ", at), pattern.size());
    names.push_back(pattern.substr(at, end - at));
    at = end;
  }
  const bool of_layers = !names.empty() && std::ranges::all_of(names, [&](const std::string& name) {
    const ModuleNames one{{name}, {}};
    return std::ranges::any_of(modules, [&](const std::string& module) { return models::matches(one, module); });
  });
  if (of_layers)
    fail(Exit::usage,
         "{} = \"{}\" is a regular expression that must match complete names, but it matches none: for the layers "
         "whose names end like that, write a list, {} = [\"{}\"]",
         key, pattern, key, fmt::join(names, "\", \""));
}

// The module that holds a module's table, which is another module if the table is shared. `tied`: two modules share the
// table.
struct TableHolder {
  std::string module;
  bool tied = false;
};
TableHolder holder_of(const models::Model& model, const std::string& module) {
  for (const auto& unit : model.units)
    if (const auto& shared = unit->shared()) {
      const std::string& table = model.units[shared->unit]->parameters()[shared->parameter].name;
      if (shared->name == module + ".weight" || table == module + ".weight")
        return {table.substr(0, table.rfind('.')), true};
    }
  return {module};
}

void require_targets(const models::Model& model, const Modules& modules, const models::Adapter& adapter,
                     const Folder& folder, const Folder& base) {
  const auto is_of = [](const ModuleNames& names) {
    return [&names](const std::string& module) { return models::matches(names, module); };
  };
  const auto refuse_other = [&](const ModuleNames& names, const std::string& given) {
    const auto other = std::ranges::find_if(modules.other, is_of(names));
    // A module that modules_to_save names gets no adapter, even if other keys name it.
    if (other == modules.other.end() || models::is_fully_trained(adapter, *other + ".weight") ||
        models::matches(adapter.exclude_modules, *other))
      return;
    const auto [holder, tied] = holder_of(model, *other);
    const std::string_view saved = last_part(holder);
    const bool shares = holder != *other;  // the output layer
    if (folder && shares)
      fail(Exit::usage,
           "{} has an adapter for {} alone, which is tied to {} (tie_word_embeddings): untie the model first: {}",
           folder->string(), *other, holder, how_to_untie(model, base));
    if (folder)
      fail(Exit::usage,
           "{} has an adapter for {}, which is not a linear layer inside the model: merge the two with peft "
           "(merge_and_unload, save_pretrained), and give the result",
           folder->string(), *other);
    if (shares)
      fail(
          Exit::usage,
          "adapter.target_modules: {} matches {}, which is tied to {} (tie_word_embeddings): peft would adapt {} "
          "alone, and merging the adapter would change both; leave it out, train the one table "
          "(adapter.modules_to_save = [\"{}\"], with adapter.ensure_weight_tying = true), or untie the model first: {}",
          given, *other, holder, last_part(*other), saved, how_to_untie(model, base));
    fail(Exit::usage,
         "adapter.target_modules: {} matches {}, which is not a linear layer and cannot have an adapter: leave it out, "
         "or train all of it (adapter.modules_to_save = [\"{}\"]{})",
         given, *other, saved, tied ? ", with adapter.ensure_weight_tying = true" : "");
  };
  const ModuleNames& targets = adapter.target_modules;
  if (targets.empty())
    fail(Exit::usage,
         "adapter.target_modules is empty, so no layer would have an adapter: give \"{}\", or names such as {}",
         models::kAllLinear, nearest(modules.linear, "q_proj"));
  if (std::ranges::find(targets.names, models::kAllLinear) != targets.names.end())
    fail(Exit::usage,
         "{}target_modules is a list with \"{}\" in it, but a list takes names of modules: write target_modules = "
         "\"{}\", without brackets",
         folder ? folder->string() + ": " : std::string("adapter."), models::kAllLinear, models::kAllLinear);
  if (targets.pattern && *targets.pattern != models::kAllLinear) {
    refuse_other(targets, *targets.pattern);
    if (std::ranges::none_of(modules.linear, is_of(targets))) {
      if (const std::string& all = *targets.pattern; all == "all" || all == "linear" || all == "all_linear")
        fail(Exit::usage, "adapter.target_modules = \"{}\": to adapt every linear layer, write \"{}\"", all,
             models::kAllLinear);
      require_no_names(modules.linear, "adapter.target_modules", *targets.pattern);
      fail(Exit::usage,
           "adapter.target_modules = {} matches no linear layer of this {} model by its complete name; the nearest are "
           "{}",
           *targets.pattern, model.family, nearest(modules.linear, *targets.pattern + "."));
    }
  }
  for (const std::string& name : targets.names) {
    const ModuleNames one{{name}, {}};
    refuse_other(one, name);
    if (!folder && std::ranges::none_of(modules.linear, is_of(one)))
      fail(Exit::usage, "adapter.target_modules: no linear layer of this {} model is called {}; the nearest are {}{}",
           model.family, name, nearest(modules.linear, name),
           name.starts_with("all") ? ", or \"all-linear\" for all of them" : "");
  }
}

// Checks the keys that name modules other than the targets. A name without a module would silently change nothing.
void require_others(const models::Model& model, const Modules& modules, const models::Adapter& adapter) {
  const std::vector<std::string> all = modules.all();
  const ModuleNames& excluded = adapter.exclude_modules;
  if (excluded.pattern == models::kAllLinear)
    fail(Exit::usage,
         "adapter.exclude_modules = \"{}\": only adapter.target_modules takes this value; name the layers that get no "
         "adapter, or leave the key out",
         models::kAllLinear);
  const auto look = [&](const ModuleNames& names, const std::string& given) {
    if (std::ranges::none_of(all, [&](const std::string& module) { return models::matches(names, module); }))
      fail(Exit::usage, "adapter.exclude_modules: no module of this {} model is called {}; the nearest are {}",
           model.family, given, nearest(all, given));
  };
  if (excluded.pattern) {
    if (std::ranges::none_of(all, [&](const std::string& module) { return models::matches(excluded, module); }))
      require_no_names(all, "adapter.exclude_modules", *excluded.pattern);
    look(excluded, *excluded.pattern);
  }
  for (const std::string& name : excluded.names) look({{name}, {}}, name);
  const auto look_at_pattern = [&](std::string_view key, const std::string& pattern) {
    const auto is_of = [&](const std::string& module) { return models::matches_end(pattern, module); };
    if (std::ranges::any_of(modules.adapted, is_of)) return;
    if (const auto other = std::ranges::find_if(all, is_of); other != all.end())
      fail(Exit::usage,
           "{}: {} matches {}, which has no adapter: leave it out, or name the layer in adapter.target_modules", key,
           pattern, *other);
    fail(Exit::usage, "{}: no layer of this {} model with an adapter is called {}; the nearest are {}", key,
         model.family, pattern, nearest(modules.adapted, pattern));
  };
  for (const auto& [pattern, rank] : adapter.rank_pattern) look_at_pattern("adapter.rank_pattern", pattern);
  for (const auto& [pattern, alpha] : adapter.alpha_pattern) look_at_pattern("adapter.alpha_pattern", pattern);
}

void require_layers(const models::Model& model, const Modules& modules, const models::Adapter& adapter) {
  std::set<std::int64_t> there;
  for (const std::string& module : modules.linear)
    if (const auto layer = models::layer_of(module)) there.insert(*layer);
  for (const std::int64_t layer : adapter.layers_to_transform)
    if (!there.contains(layer))
      fail(Exit::usage, "adapter.layers_to_transform: this {} model has no layer {}: its layers are {} to {}",
           model.family, layer, there.empty() ? 0 : *there.begin(), there.empty() ? 0 : *there.rbegin());
}

void require_saved(const models::Model& model, const Modules& modules, const models::Adapter& adapter,
                   const Folder& folder, const Folder& base) {
  const std::vector<std::string> all = modules.all();
  for (const std::string& name : adapter.modules_to_save) {
    const models::Adapter one{.modules_to_save = {name}};
    const auto is_of = [&](const std::string& module) { return models::is_fully_trained(one, module + ".weight"); };
    bool tied = false;
    for (const auto& unit : model.units) {
      const auto& shared = unit->shared();
      if (!shared) continue;
      const std::string& holder = model.units[shared->unit]->parameters()[shared->parameter].name;
      if (!models::is_fully_trained(one, holder) && !models::is_fully_trained(one, shared->name)) continue;
      if (!adapter.ensure_weight_tying && folder)
        fail(Exit::usage,
             "{}: modules_to_save names {}, which is tied to {} (tie_word_embeddings), without ensure_weight_tying: "
             "peft trained a copy of one of the two; untie the model first: {}",
             folder->string(), name, models::is_fully_trained(one, holder) ? shared->name : holder,
             how_to_untie(model, base));
      if (!adapter.ensure_weight_tying)
        fail(Exit::usage,
             "adapter.modules_to_save: {} matches {}, which is tied to {} (tie_word_embeddings): peft would train a "
             "copy of one of the two and transformers would tie them again when it reads the result; set "
             "adapter.ensure_weight_tying = true to train the one table, or untie the model first: {}",
             name, holder, shared->name, how_to_untie(model, base));
      if (!models::is_fully_trained(adapter, holder))
        fail(Exit::usage,
             "adapter.modules_to_save: {} has no table of its own, because it is tied to {}: name that module instead",
             name, holder.substr(0, holder.rfind('.')));
      tied = true;
    }
    for (const auto& unit : model.units)
      for (const models::Parameter& p : unit->parameters())
        if (!p.trained() && models::is_fully_trained(one, p.name))
          fail(Exit::usage,
               "adapter.modules_to_save: {} matches {}, which the model's files store in 4 bits, so it cannot be "
               "trained: leave it out, or start from the original model",
               name, p.name);
    // peft lists both names of a classifier's scores for every family.
    const bool of_scores = model.objective != models::Objective::causal_lm && (name == "classifier" || name == "score");
    if (!folder && !tied && !of_scores && std::ranges::none_of(all, is_of))
      fail(Exit::usage,
           "adapter.modules_to_save: no module of this {} model has a name that ends in {}; the nearest are {}",
           model.family, name, nearest(all, name));
  }
  // DoRA computes no gradient of the matrix that it scales.
  for (const auto& unit : model.units)
    for (const auto& layer : unit->linear_layers())
      for (const models::Parameter& p : unit->parameters())
        if (layer.low_rank.dora && p.trained() && p.name == layer.name + ".weight")
          fail(Exit::usage,
               "adapter.modules_to_save trains all of {}, which adapter.target_modules also matches, but with "
               "adapter.dora a layer cannot have both: leave it out of one of the two",
               layer.name);
}

// The layers whose adapter has a rank above their width, and the first of them.
struct HighRanks {
  std::size_t layers = 0;
  std::string first = {};
  std::int64_t rank = 0, width = 0;
};
HighRanks high_ranks(const models::Model& model) {
  constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
  HighRanks out;
  std::set<std::string_view> layers;
  for (const auto& unit : model.units)
    for (const models::Parameter& p : unit->parameters()) {
      const bool of_a = p.name.ends_with(kA);
      if (!p.of_adapter || !(of_a || p.name.ends_with(kB))) continue;
      const std::int64_t rank = p.shape[of_a ? 0 : 1], width = p.shape[of_a ? 1 : 0];
      if (rank <= width) continue;
      const std::string_view layer = std::string_view(p.name).substr(0, p.name.size() - (of_a ? kA : kB).size());
      if (layers.empty()) out = {0, std::string(layer), rank, width};
      layers.insert(layer);
    }
  out.layers = layers.size();
  return out;
}

}  // namespace

void require_adaptable(const models::Model& model, const models::Adapter& adapter, const Folder& folder,
                       const Folder& base) {
  const Modules modules(model);
  require_targets(model, modules, adapter, folder, base);
  if (!folder) require_layers(model, modules, adapter);
  require_saved(model, modules, adapter, folder, base);
  if (modules.adapted.empty() && folder)
    fail(Exit::usage,
         "{} is an adapter of another model: no linear layer of this {} model, whose layers are called {}, is one of "
         "its target_modules (in its layers_to_transform); give its own base model as model.path",
         folder->string(), model.family, nearest(modules.linear, "q_proj"));
  if (modules.adapted.empty())
    fail(Exit::usage,
         "the adapter has no target left in this {} model: adapter.exclude_modules, modules_to_save or "
         "layers_to_transform exclude all of them; exclude fewer",
         model.family);
  if (folder) return;  // peft trained it as it is
  require_others(model, modules, adapter);
  if (const HighRanks high = high_ranks(model); high.layers == modules.adapted.size())
    fail(Exit::usage,
         "the adapter's rank {} is above the width {} of {}, and all layers are narrower than their ranks: set a lower "
         "adapter.rank",
         high.rank, high.width, high.first);
}

std::optional<std::string> note_of_high_ranks(const models::Model& model) {
  const HighRanks high = high_ranks(model);
  if (high.layers == 0) return std::nullopt;
  return fmt::format(
      "the adapter's rank {} is above the width {} of {}{}, but B A has at most rank {} there: a lower rank for these "
      "layers (adapter.rank_pattern) can learn the same with less memory",
      high.rank, high.width, high.first,
      high.layers == 1 ? "" : fmt::format(" (and that of {})", counted(high.layers - 1, "more layer")), high.width);
}

void require_freezable(const models::Model& model, std::span<const std::string> patterns) {
  std::vector<std::string> names;
  for (const auto& unit : model.units) {
    for (const models::Parameter& parameter : unit->parameters()) names.push_back(parameter.name);
    if (unit->shared()) names.push_back(unit->shared()->name);
  }
  for (const std::string& pattern : patterns)
    if (std::ranges::none_of(names, [&](const auto& name) { return models::is_frozen_by({&pattern, 1}, name); }))
      fail(Exit::usage, "training.freeze: no tensor of this {} model has a name like {}; the nearest are {}",
           model.family, pattern, nearest_tensors(names, pattern));
  if (model.trained_parameters() == 0)
    fail(Exit::usage, "training.freeze = [{}] freezes the whole model, so nothing would be trained: leave some out",
         fmt::join(patterns, ", "));
}

void require_quantised(const models::Model& model) {
  if (std::ranges::any_of(model.units, [](const auto& unit) { return unit->size(models::PoolKind::quantised) > 0; }))
    return;
  const bool frozen = model.trained_parameters() < model.parameters();
  fail(Exit::usage, "model.frozen_format = \"nf4\" applies to frozen matrices of blocks' linear layers, but {}",
       frozen ? "none of them is frozen: name some in training.freeze, or leave it out"
              : "nothing is frozen: give training.freeze, or leave it out");
}

void require_whole_scales(const models::Model& model, const models::ShardRange& shards) {
  for (const auto& unit : model.units)
    for (const models::Parameter& p : unit->parameters()) {
      if (p.pool() != models::PoolKind::quantised || p.slice.shards == 1) continue;
      const std::size_t run = p.piece(0).length;  // elements that follow each other
      if (run % device::kScaleBlock == 0) continue;
      std::size_t most = shards.of;
      while (most > 1 && run * (shards.of / most) % device::kScaleBlock != 0) most /= 2;
      fail(Exit::usage, "{} cuts {} every {} elements, but in 4 bits {} consecutive elements share a scale: {}",
           key_text(shards), p.name, run, device::kScaleBlock,
           most > 1                   ? fmt::format("use at most {}", most)
           : model.quantised_in_files ? "use 1, or a model whose files are not in 4 bits"
                                      : "use 1, or leave model.frozen_format out");
    }
}

}  // namespace strata::runtime
