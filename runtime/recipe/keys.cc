#include "runtime/recipe/keys.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "runtime/recipe/keys/checkpoint_keys.h"
#include "runtime/recipe/keys/control_keys.h"
#include "runtime/recipe/keys/data_keys.h"
#include "runtime/recipe/keys/machine_keys.h"
#include "runtime/recipe/keys/report_keys.h"
#include "runtime/recipe/keys/training_keys.h"
#include "runtime/recipe/names_elsewhere.h"

namespace strata::runtime {
namespace {

std::vector<RecipeKey> make_keys() {
  std::vector<RecipeKey> out;
  for (const auto section :
       {model_keys, data_keys, training_keys, optimizer_keys, scheduler_keys, zero_keys, memory_keys, device_keys,
        comm_keys, fp16_keys, checkpoint_keys, evaluation_keys, control_keys, report_keys})
    std::ranges::move(section(), std::back_inserter(out));
  return out;
}

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string default_text(const RecipeKey& key, const Recipe& defaults) {
  return key.name == "model.init" ? "by model.path" : key.text(defaults);
}

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

}  // namespace

std::span<const RecipeKey> recipe_keys() {
  static const std::vector<RecipeKey> keys = make_keys();
  return keys;
}

const RecipeKey& nearest_key(std::string_view name) {
  name = name.substr(0, 128);  // whatever a file holds, the comparison stays cheap
  const RecipeKey* nearest = nullptr;
  std::size_t fewest = 0;
  for (const RecipeKey& key : recipe_keys()) {
    // A key in the wrong section, or in none, is one mistake, not as many as the section has letters.
    const std::size_t distance = std::min(edits(name, key.name), edits(last_part(name), last_part(key.name)) + 1);
    if (nearest && distance >= fewest) continue;
    nearest = &key;
    fewest = distance;
  }
  return *nearest;
}

std::string keys_about(std::string_view part) {
  std::string out;
  const Recipe defaults;
  for (const RecipeKey& key : recipe_keys())
    if (key.name.find(part) != std::string::npos)
      out += fmt::format("{} = {}\n    {}\n    allowed: {}\n", key.name, default_text(key, defaults), key.meaning,
                         key.allowed);
  const auto add = [&](const NameElsewhere& other) {
    out += fmt::format("{}, a name of other programs\n    {}\n", other.name, text_of(other));
  };
  for (const NameElsewhere& other : names_elsewhere())
    if (folded(other.name).find(folded(part)) != std::string::npos) add(other);
  if (const NameElsewhere* other = out.empty() ? find_elsewhere(part) : nullptr) add(*other);
  if (out.empty()) fail(Exit::usage, "no key's name contains {}: did you mean {}?", part, nearest_key(part).name);
  return out;
}

std::string recipe_reference() {
  const auto cell = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
    return text;
  };
  std::string out =
      "# Recipe\n\nEvery key of a recipe (TOML), as `strata keys` prints it. Relative paths start at the "
      "recipe's "
      "folder,\nthose of `--set` at the current one; `~/` is the home folder. `model.config.KEY` overrides one key "
      "of `config.json`.\n\n"
      "| key | default | allowed | meaning |\n|---|---|---|---|\n";
  const Recipe defaults;
  for (const RecipeKey& key : recipe_keys()) {
    const std::string text = default_text(key, defaults);
    out += fmt::format("| `{}` | {} | {} | {} |\n", key.name, text == "none" || text == "[]" ? "" : cell(text),
                       cell(key.allowed), cell(key.meaning));
  }
  return out;
}

}  // namespace strata::runtime
