#include "launcher/adapter_option.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "comm/agreement.h"
#include "launcher/screen/printable.h"
#include "runtime/checkpoint/export/adapter_folder.h"
#include "runtime/checkpoint/folder.h"

namespace strata::launcher {

void require_sole_adapter(const std::filesystem::path& folder, const runtime::LoadedRecipe& loaded) {
  const auto place = [](const std::filesystem::path& path) { return std::filesystem::weakly_canonical(path); };
  const runtime::Recipe& recipe = loaded.recipe;
  if (const auto& other = loaded.replaced_adapter; other && place(*other) != place(*recipe.adapter.path))
    fail(Exit::usage, "--adapter {} and adapter.path name different folders ({} and {}): leave one of them out",
         folder.string(), other->string(), recipe.adapter.path->string());
  const runtime::Recipe::Checkpoint& checkpoint = recipe.checkpoint;
  if (checkpoint.resume == "none") return;
  if (checkpoint.resume != "auto")
    fail(Exit::usage,
         "--adapter {} and checkpoint.resume = \"{}\" contradict each other: an adapter belongs to model.path; leave "
         "one of "
         "them out",
         folder.string(), checkpoint.resume);
  if (checkpoint.dir && !runtime::list_checkpoints(*checkpoint.dir).empty())
    fail(Exit::usage,
         "--adapter {} and checkpoint.dir = {} contradict each other: the newest checkpoint there would be evaluated; "
         "leave --adapter out for that, or give --set checkpoint.resume=none for the adapter on model.path",
         folder.string(), checkpoint.dir->string());
}

namespace {

// A recipe with the model, and with what the assignments say about adapter.kind. Their other keys may need the adapter.
runtime::Recipe recipe_of_model(const std::filesystem::path& model, const std::vector<std::string>& sets) {
  std::vector<std::string> known = {"model.path=" + json_string(model.string())};
  std::ranges::copy_if(sets, std::back_inserter(known),
                       [](const std::string& set) { return set.starts_with("adapter.kind"); });
  return runtime::load_recipe(std::nullopt, known);
}

}  // namespace

void take_base_of(std::filesystem::path& model, std::optional<std::filesystem::path>& adapter,
                  std::vector<std::string>& sets, comm::World& world) {
  std::optional<std::filesystem::path> base;
  comm::agree(world, [&] {
    if (!adapter) base = runtime::base_of_recipe(recipe_of_model(model, sets));
  });
  if (!base) return;
  adapter = std::exchange(model, *base);
  // Comes first, so that assignments of --set override it.
  sets.insert(sets.begin(), "adapter.path=" + json_string(std::filesystem::absolute(*adapter).string()));
  if (world.rank() == 0) note(runtime::note_of_base(*adapter, model));
}

}  // namespace strata::launcher
