#pragma once
// launcher/command_line/ is what `strata COMMAND --help` shows: the options of each command, which are parsed into what
// the command takes (here, model_commands.h, machine_commands.h), of the kinds in argument_kinds.h.
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace strata::launcher {

// What plans, starts and runs a recipe. If the command line names the command, parsing runs it, and sets `status` to
// its exit code.
void add_train(CLI::App& app, int& status);
// ranks_command: the words behind --.
void add_launch(CLI::App& app, int& status, std::vector<std::string> ranks_command);
void add_node_agent(CLI::App& app, int& status);
void add_plan(CLI::App& app, int& status);
void add_eval(CLI::App& app, int& status);
void add_keys(CLI::App& app);

}  // namespace strata::launcher
