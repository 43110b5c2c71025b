#pragma once
#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

// A sentence about arguments that `command` refused: what is wrong, and what was probably meant (an option, --set with
// a key of the recipe, or the key for another program's option). `words`: the arguments after the command's name.
std::string wrong_arguments(const CLI::App& command, const CLI::ParseError& error, std::span<const std::string> words);

// A sentence about a word that is no command, with the command that it is a typo of.
std::string unknown_command(std::string_view word, std::span<CLI::App* const> commands);

}  // namespace strata::launcher
