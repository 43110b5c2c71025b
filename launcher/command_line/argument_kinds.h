#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json_writer.h"

namespace strata::launcher {

// Adds a command that calls run(options); its result is the program's status.
template <typename Options>
std::pair<CLI::App*, std::shared_ptr<Options>> add_command(CLI::App& app, int& status, std::string name,
                                                           std::string meaning, int (*run)(const Options&)) {
  CLI::App* command = app.add_subcommand(std::move(name), std::move(meaning));
  auto options = std::make_shared<Options>();
  command->callback([options, run, &status] { status = run(*options); });
  return {command, std::move(options)};
}

// An integer in [least, most], written in decimal digits. Every integer option has this check, because CLI11's own
// conversion reads 010 as 8, accepts 0x2, and truncates numbers that are too large.
CLI::Validator integer(std::int64_t least, std::int64_t most);
// A number in [least, most], written in decimal digits; not NaN.
CLI::Validator within(double least, double most);
// Expands ~/x to a path, because a shell does not expand it in --out=~/x.
CLI::Validator as_path();

// Lets an option be given several times, with one value each time. The word after the value is not another value.
inline CLI::Option* given_repeatedly(CLI::Option* option) {
  return option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
}

// Adds an option whose value must pass `check`.
template <typename T>
CLI::Option* add_checked(CLI::App* command, std::string name, T& value, CLI::Validator check, std::string meaning) {
  return command->add_option(std::move(name), value, std::move(meaning))->check(std::move(check));
}

// Adds an option that names a file or folder, or several.
template <typename Path>
CLI::Option* add_path(CLI::App* command, std::string name, Path& path, std::string meaning) {
  CLI::Option* option = command->add_option(std::move(name), path, std::move(meaning))->transform(as_path());
  if constexpr (requires { path.push_back({}); })
    if (!option->get_positional()) given_repeatedly(option);
  return option;
}

template <typename Options>
void add_force(CLI::App* command, Options& options) {
  command->add_flag("--force", options.force, "overwrite a file that this command did not write");
}

// Adds --adapter, which sets a key of the recipe.
template <typename Options>
void add_adapter(CLI::App* command, Options& options, const char* meaning) {
  command
      ->add_option_function<std::filesystem::path>(
          "--adapter",
          [&options](const std::filesystem::path& folder) {
            options.adapter = folder;
            options.sets.push_back("adapter.path=" + json_string(std::filesystem::absolute(folder).string()));
          },
          meaning)
      ->transform(as_path());
}

template <typename Options>
void add_sets(CLI::App* command, Options& options) {
  given_repeatedly(command->add_option_function<std::vector<std::string>>(
      "--set",
      // The --set assignments follow those of other options.
      [&options](const auto& given) { options.sets.insert(options.sets.end(), given.begin(), given.end()); },
      "override a recipe key: KEY=VALUE"));
}

template <typename Options>
void add_recipe(CLI::App* command, Options& options) {
  add_path(command, "RECIPE", options.recipe, "recipe (TOML); without it everything comes from --set");
  add_sets(command, options);
}

}  // namespace strata::launcher
