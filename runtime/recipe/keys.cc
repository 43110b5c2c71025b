#include "runtime/recipe/keys.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/error.h"
#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/names/names_elsewhere.h"
#include "runtime/recipe/toml_file.h"
#include "runtime/recipe/values_elsewhere.h"

namespace strata::runtime {
namespace {

std::vector<RecipeKey> make_keys() {
  std::vector<RecipeKey> out;
  for (const auto section :
       {model_keys, data_keys, training_keys, adapter_keys, optimizer_keys, scheduler_keys, parallel_keys, zero_keys,
        memory_keys, device_keys, comm_keys, fp16_keys, checkpoint_keys, evaluation_keys, control_keys, report_keys})
    std::ranges::move(section(), std::back_inserter(out));
  return out;
}

std::string default_text(const RecipeKey& key, const Recipe& defaults) {
  return key.name == "model.init" ? "by model.path" : key.text(defaults);
}

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

// 0: the name, or its last part, is the text; 1: some of its words are; 2: another name.
std::size_t distance_of(std::string_view text, std::string_view name) {
  if (text.empty()) return 2;
  if (name == text || last_part(name) == text) return 0;
  const auto is_boundary = [&](std::size_t at) { return at >= name.size() || name[at] == '.' || name[at] == '_'; };
  for (std::size_t at = 0; (at = name.find(text, at)) != std::string_view::npos; ++at)
    if ((at == 0 || is_boundary(at - 1)) && is_boundary(at + text.size())) return 1;
  return 2;
}

}  // namespace

std::span<const RecipeKey> recipe_keys() {
  static const std::vector<RecipeKey> keys = make_keys();
  return keys;
}

const RecipeKey* find_key(std::string_view name) {
  const auto keys = recipe_keys();
  const auto key = std::ranges::find(keys, name, &RecipeKey::name);
  return key == keys.end() ? nullptr : &*key;
}

const RecipeKey* key_in_any_section(std::string_view name) {
  const RecipeKey* found = nullptr;
  for (const RecipeKey& key : recipe_keys()) {
    if (last_part(key.name) != name) continue;
    if (found) return nullptr;
    found = &key;
  }
  return found;
}

const RecipeKey* similar_key(std::string_view written) {
  const std::string name = folded(written.substr(0, 128));  // keeps the comparison cheap
  const RecipeKey* nearest = nullptr;
  std::size_t fewest = 0;
  for (const RecipeKey& key : recipe_keys()) {
    const std::string_view part = last_part(name);
    const std::size_t whole = edits(name, key.name), last = edits(part, last_part(key.name));
    // A wrong or missing section counts as one mistake, not as one per letter.
    const bool of_whole = is_typo(whole, name.size(), 6), of_last = is_typo(last, part.size(), 4);
    if (!of_whole && !of_last) continue;
    const std::size_t distance = std::min(of_whole ? whole : last + 1, of_last ? last + 1 : whole);
    if (nearest && distance >= fewest) continue;
    nearest = &key;
    fewest = distance;
  }
  if (nearest) return nearest;
  constexpr std::size_t kBeginning = 5;  // shorter ones begin many names
  const std::string_view part = last_part(name);
  if (part.size() < kBeginning) return nullptr;
  const auto longer =
      std::ranges::find_if(recipe_keys(), [&](const RecipeKey& key) { return last_part(key.name).starts_with(part); });
  return longer == recipe_keys().end() ? nullptr : &*longer;
}

std::string keys_about(std::string_view asked) {
  const std::string part = folded(asked);
  std::string by_nearness[3], &out = by_nearness[2];
  std::set<std::string_view> shown;
  const Recipe defaults;
  const auto add_key = [&](const RecipeKey& key) {
    if (shown.insert(key.name).second)
      by_nearness[distance_of(part, key.name)] += fmt::format("{} = {}\n    {}\n    allowed: {}\n", key.name,
                                                              default_text(key, defaults), key.meaning, key.allowed);
  };
  const auto add = [&](const NameElsewhere& other) {
    by_nearness[distance_of(part, folded(other.name))] +=
        fmt::format("{} (other tools)\n    {}\n", other.name, text_of(other));
  };
  const auto nothing = [&] { return std::ranges::all_of(by_nearness, &std::string::empty); };
  const auto has = [&](std::string_view text) { return folded(text).find(part) != std::string::npos; };
  for (const RecipeKey& key : recipe_keys())
    if (has(key.name) || (!part.empty() && has_value(key, asked))) add_key(key);
  if (has("model.config.KEY") || part.starts_with(kConfigPrefix))
    out +=
        "model.config.KEY\n    overrides KEY of the model's config.json; dots for keys inside it\n"
        "    allowed: as in config.json\n";
  if (part.empty()) return out;
  for (const NameElsewhere& other : names_elsewhere())
    if (has(other.name)) add(other);
  if (nothing()) {
    const RecipeKey* const same = key_in_any_section(last_part(part));
    const NameElsewhere* const other = find_elsewhere(part);
    if (same && (!other || is_by_section(*other, part)))
      add_key(*same);
    else if (other)
      add(*other);
  }
  if (nothing())
    for (const RecipeKey& key : recipe_keys())
      if (const std::string meant = value_meant(asked, key); !meant.empty())
        out += fmt::format("{} (other tools)\n    use {} = {}\n", asked, key.name, meant);
  constexpr std::size_t kWord = 4;  // shorter words occur inside others
  if (part.size() >= kWord)
    for (const RecipeKey& key : recipe_keys())
      if (has(key.meaning)) add_key(key);
  if (!nothing()) return by_nearness[0] + by_nearness[1] + by_nearness[2];
  const RecipeKey* similar = similar_key(part);
  fail(Exit::usage, "no key has {} in its name, values or meaning{} (strata keys lists all)", asked,
       similar ? fmt::format(": did you mean {}?", similar->name) : "");
}

std::string recipe_reference() {
  const auto cell = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
    return text;
  };
  std::string out =
      "# Recipe\n\nEvery key of a recipe (TOML), as `strata keys` prints it. Relative paths start at the recipe's "
      "folder,\nthose of `--set` at the current one; `~/` is the home folder. `model.config.KEY` overrides one key of "
      "`config.json`.\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n";
  const Recipe defaults;
  for (const RecipeKey& key : recipe_keys()) {
    const std::string text = default_text(key, defaults);
    out += fmt::format("| `{}` | {} | {} | {} |\n", key.name, text == "none" || text == "[]" ? "" : cell(text),
                       cell(key.allowed), cell(key.meaning));
  }
  return out;
}

}  // namespace strata::runtime
