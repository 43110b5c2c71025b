#include <algorithm>
#include <utility>

#include "base/json/json_writer.h"
#include "models/adapter.h"
#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/keys/key_kinds.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

using namespace kinds;
using models::AdapterInit, models::ModuleNames;

// A list of names, or a string that is a regular expression.
template <typename At>
RecipeKey modules(std::string name, std::string allowed, At at, std::string meaning) {
  auto set = [name, at](Recipe& recipe, const Value& v, const fs::path&) {
    if (const auto* pattern = std::get_if<std::string>(&v.value)) {
      if (pattern->empty()) return false;
      models::check_pattern(name, *pattern);
      at(recipe) = ModuleNames{{}, *pattern};
      return true;
    }
    auto names = names_in(v);
    if (names) at(recipe) = ModuleNames{std::move(*names), {}};
    return names.has_value();
  };
  auto text = [at](const Recipe& recipe) {
    const ModuleNames& modules = at(recipe);
    if (modules.pattern) return json_string(*modules.pattern);
    const Recipe defaults;  // an empty list must not read as the default if that is a pattern
    return at(defaults).pattern ? text_of_list(modules.names) : text_or_none(modules.names);
  };
  return {std::move(name), std::move(allowed), std::move(meaning), set, text};
}

RecipeKey layers_to_transform() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    const auto layer_in = [](const Value& item) { return integer_in(item, 0, kMany); };
    auto& layers = recipe.adapter.lora.layers_to_transform;
    if (auto list = list_in(v, layer_in)) return !list->empty() && store(std::move(list), layers);
    const auto only = layer_in(v);
    if (only) layers = {*only};
    return only.has_value();
  };
  auto text = [](const Recipe& recipe) { return text_or_none(recipe.adapter.lora.layers_to_transform); };
  return {"adapter.layers_to_transform",
          "a layer's number or a list of at least one",
          "restrict a list of target_modules to these layers",
          set,
          text,
          most_of(kMany)};
}

// Joins the names of nested tables with dots: TOML splits a name with dots into nested tables.
bool add_entries(const RecipeTable& table, const std::string& prefix,
                 std::vector<std::pair<std::string, const Value*>>& out) {
  for (const auto& [name, value] : table) {
    if (name.empty()) return false;
    if (const auto* inner = std::get_if<RecipeTable>(&value.value)) {
      if (!add_entries(*inner, prefix + name + ".", out)) return false;
    } else {
      out.emplace_back(prefix + name, &value);
    }
  }
  return true;
}

// A table of pattern = number, each of which `item_in` reads.
template <typename At, typename ItemIn>
RecipeKey table(std::string name, std::string allowed, At at, ItemIn item_in, std::string meaning) {
  auto set = [name, at, item_in](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* given = std::get_if<RecipeTable>(&v.value);
    std::vector<std::pair<std::string, const Value*>> entries;
    if (!given || !add_entries(*given, "", entries)) return false;
    std::remove_reference_t<decltype(at(recipe))> out;
    for (const auto& [pattern, value] : entries) {
      const auto number = item_in(*value);
      if (!number) return false;
      models::check_pattern(name, pattern);
      out.emplace_back(pattern, *number);
    }
    at(recipe) = std::move(out);
    return true;
  };
  auto text = [at](const Recipe& recipe) {
    std::string out;
    for (const auto& [pattern, number] : at(recipe))
      out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", json_string(pattern), number);
    return out.empty() ? std::string("none") : "{ " + out + " }";
  };
  return {std::move(name), std::move(allowed), std::move(meaning), set, text};
}

using models::kMaxAdapterRank;

std::optional<std::int64_t> rank_in(const Value& v) {
  return integer_in(v, 1, kMaxAdapterRank);
}
std::optional<double> alpha_in(const Value& v) {
  return number_in(v, kTiny, kHuge);
}

}  // namespace

std::vector<RecipeKey> adapter_keys() {
  return {
      choice<AdapterKind>(
          "adapter.kind", {{"none", AdapterKind::none}, {"lora", AdapterKind::lora}}, STRATA_AT(adapter.kind),
          "lora: freeze the model, and train low-rank factors for its linear layers: y = W x + (alpha / rank) B A x"),
      integer("adapter.rank", 1, kMaxAdapterRank, STRATA_AT(adapter.lora.rank), "rows of A and columns of B (r)"),
      number("adapter.alpha", kTiny, kHuge, "a number from 1e-30", STRATA_AT(adapter.lora.alpha),
             "the scale of B A x, times the rank (lora_alpha)"),
      number("adapter.dropout", 0, 1, "a number from 0 to below 1", STRATA_AT(adapter.lora.dropout),
             "dropout of the input of A (lora_dropout)", true),
      modules("adapter.target_modules",
              "\"all-linear\", a list of names, or a Python regular expression for complete names",
              STRATA_AT(adapter.lora.target_modules),
              "linear layers that get an adapter, by complete name or by its end after a dot; all-linear: all but the "
              "output layer, which has to be named"),
      modules("adapter.exclude_modules", "a list of names, or a Python regular expression for complete names",
              STRATA_AT(adapter.lora.exclude_modules), "linear layers that get no adapter"),
      names("adapter.modules_to_save", "a name or a list of names", STRATA_AT(adapter.lora.modules_to_save),
            "modules that are fully trained and saved with the adapter, by the ends of their names; for classifiers, "
            "classifier and score are always among them"),
      flag("adapter.ensure_weight_tying", STRATA_AT(adapter.lora.ensure_weight_tying),
           "adapter.modules_to_save may name an embedding that shares its table with the output layer, and trains the "
           "one "
           "table"),
      layers_to_transform(),
      flag("adapter.rslora", STRATA_AT(adapter.lora.rslora), "scale by alpha / sqrt(rank)"),
      flag("adapter.dora", STRATA_AT(adapter.lora.dora),
           "also train the magnitudes of W's rows (DoRA): y = m / |W + s B A| (W + s B A) x"),
      choice<AdapterInit>(
          "adapter.init", {{"default", AdapterInit::kaiming}, {"gaussian", AdapterInit::gaussian}},
          STRATA_AT(adapter.lora.init),
          "initialisation of A from training.seed; default: uniform with bound 1 / sqrt(in); gaussian: normal with "
          "deviation 1 / rank. B starts at zero"),
      table("adapter.rank_pattern",
            fmt::format("a table of pattern = rank, each an integer from 1 to {}", kMaxAdapterRank),
            STRATA_AT(adapter.lora.rank_pattern), rank_in,
            "other ranks for some layers: regular expressions for the ends of their names; the first match counts"),
      table("adapter.alpha_pattern", "a table of pattern = alpha, each a number from 1e-30",
            STRATA_AT(adapter.lora.alpha_pattern), alpha_in, "the same for alpha"),
      path("adapter.path", STRATA_AT(adapter.path),
           "a peft folder (adapter_config.json, adapter_model.safetensors) to continue from: implies lora and sets the "
           "other keys; those in the recipe must agree with it"),
  };
}

}  // namespace strata::runtime
