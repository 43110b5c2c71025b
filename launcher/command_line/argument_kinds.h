#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>

namespace strata::launcher {

// An integer of [least, most] in decimal digits. CLI11's own conversion, which takes 010 for 8 and 0x2 for 2, and cuts
// what is too large, gets nothing else to see: every option that is an integer has this check.
CLI::Validator integer(std::int64_t least, std::int64_t most);
// A number of [least, most] in decimal digits, which NaN is not.
CLI::Validator within(double least, double most);
// Makes of ~/x, which a shell leaves as it is in --out=~/x, a path.
CLI::Validator as_path();

// An option that names a file or a folder, or several.
template <typename Path>
CLI::Option* add_path(CLI::App* command, std::string name, Path& path, std::string meaning) {
  return command->add_option(std::move(name), path, std::move(meaning))->transform(as_path());
}

template <typename Options>
void add_force(CLI::App* command, Options& options) {
  command->add_flag("--force", options.force, "overwrite a file that this command did not write");
}

template <typename Options>
void add_sets(CLI::App* command, Options& options) {
  command->add_option("--set", options.sets, "override a recipe key: KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

template <typename Options>
void add_recipe(CLI::App* command, Options& options) {
  add_path(command, "RECIPE", options.recipe, "recipe (TOML); without it everything comes from --set");
  add_sets(command, options);
}

}  // namespace strata::launcher
