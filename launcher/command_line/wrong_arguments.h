#pragma once
#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>

namespace strata::launcher {

// A sentence about arguments that `command` refused: the mistake, and the likely intention (an option, --set with a key
// of the recipe, or the key for another program's option). `words`: the arguments after the command's name.
std::string wrong_arguments(const CLI::App& command, const CLI::ParseError& error, std::span<const std::string> words);

// A sentence about a word that precedes any command and is not an option, with the nearest option.
std::string unknown_option(const CLI::App& app, std::string_view word);
// A sentence about a word that is not a command, with the nearest command.
std::string unknown_command(std::string_view word, std::span<CLI::App* const> commands);

}  // namespace strata::launcher
