#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/quote.h"
#include "launcher/command_line/wrong_arguments.h"
#include "launcher/launch/launch.h"
#include "launcher/rank/planned_run.h"
#include "launcher/screen/printable.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/search/micro_batch.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/user_path.h"
#include "runtime/run/resume.h"

namespace strata::launcher {

std::vector<std::string> TrainCommand::words(std::span<const std::string> more) const {
  std::vector<std::string> out = {"train"};
  if (recipe) out.push_back(recipe->string());
  for (const auto& all : {std::span<const std::string>(sets), more})
    for (const std::string& one : all) out.insert(out.end(), {"--set", one});
  if (force) out.emplace_back("--force");
  return out;
}

runtime::Recipe TrainCommand::load() const {
  runtime::Recipe out = runtime::load_recipe(recipe, sets);
  runtime::require_trainable(out);
  return out;
}

TrainCommand read_train_command(std::span<const std::string> words) {
  if (words.empty())
    fail(Exit::usage, "nothing to launch: strata launch [options] -- train RECIPE.toml (see strata launch --help)");
  if (words.size() > 1 && words[1] == "train" && (words[0] == "strata" || words[0].ends_with("/strata")))
    fail(Exit::usage, "leave {} out: write train RECIPE after the two dashes", words[0]);
  if (words[0] != "train")
    fail(Exit::usage, "launch starts train, not {}: mpirun -n N strata {} ... starts other commands on N ranks",
         words[0], shell_word(words[0]));
  TrainCommand out;
  std::string recipe;
  CLI::App app("", "train");
  app.set_help_flag();
  app.add_option("RECIPE", recipe);
  app.add_option("--set", out.sets)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_flag("--force", out.force);
  std::vector<std::string> rest(words.rbegin(), words.rend() - 1);  // CLI11 takes the words from the back
  try {
    app.parse(rest);
  } catch (const CLI::ParseError& error) {
    fail(Exit::usage, "after --, {}", wrong_arguments(app, error, std::span(words).subspan(1)));
  }
  if (!recipe.empty()) out.recipe = runtime::user_path(recipe);
  return out;
}

runtime::Recipe resolve_micro_batch(TrainCommand& command, const runtime::Recipe& recipe, int ranks, device::Kind kind,
                                    const Note& unseen) {
  if (recipe.training.micro_batch_size != runtime::kAutomaticBatch) return recipe;
  std::int64_t size = 0;
  if (const auto resumed = runtime::resume_micro_batch(recipe)) {
    note(resumed->text);
    size = resumed->size;
  } else {
    runtime::Workload workload = runtime::open_workload(recipe);
    (void)resolve_visible_data(workload, unseen);
    workload.resolved.tensor_shards = runtime::shards_to_take(recipe, runtime::resumed_shards(recipe));
    size = resolve_batch(workload, ranks, {kind, 0});
  }
  command.sets.push_back(fmt::format("training.micro_batch_size={}", size));
  return command.load();
}

std::vector<RecipeFile> recipe_files(const TrainCommand& command, const runtime::Recipe& recipe) {
  std::vector<RecipeFile> out;
  const auto add = [&](const char* key, const std::optional<std::filesystem::path>& path) {
    if (path) out.push_back({key, path->string()});
  };
  add("the recipe", command.recipe);
  add("model.path", recipe.model.path);
  for (const runtime::DataSource& source : recipe.data.train)
    for (const std::string& pattern : source.files) out.push_back({"data.train", pattern});
  for (const std::string& pattern : recipe.data.validation) out.push_back({"data.validation", pattern});
  add("evaluation.prompts", recipe.evaluation.prompts);
  if (const std::string& resume = recipe.checkpoint.resume; resume != "auto" && resume != "none")
    out.push_back({"checkpoint.resume", resume});
  add("control.tls_cert", recipe.control.tls_cert);
  add("control.tls_key", recipe.control.tls_key);
  add("control.tls_client_ca", recipe.control.tls_client_ca);
  add("control.token_file", recipe.control.token_file);
  return out;
}

std::string changed_keys(const runtime::Recipe& recipe) {
  std::set<std::string> usual;
  std::istringstream defaults(runtime::to_text({})), lines(runtime::to_text(recipe));
  std::string line, out;
  while (std::getline(defaults, line)) usual.insert(line);
  while (std::getline(lines, line))
    if (!usual.contains(line)) out += line + "\n";
  return out;
}

}  // namespace strata::launcher
