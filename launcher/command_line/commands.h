#pragma once
// launcher/command_line/ defines the options of each command, as `strata COMMAND --help` shows them. They are parsed
// into the command's options struct (here) and checked by argument_kinds.h. If the command line names the command,
// parsing runs it and sets `status` to its exit code.
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace strata::launcher {

// Commands that plan, start or run a recipe.
void add_train(CLI::App& app, int& status);
// ranks_command: the words after `--`.
void add_launch(CLI::App& app, int& status, std::vector<std::string> ranks_command);
void add_node_agent(CLI::App& app, int& status);
void add_plan(CLI::App& app, int& status);
void add_eval(CLI::App& app, int& status);
void add_keys(CLI::App& app);

// Commands that work with models and texts.
void add_generate(CLI::App& app, int& status);
void add_predict(CLI::App& app, int& status);
void add_export(CLI::App& app, int& status);
void add_tokenize(CLI::App& app, int& status);
void add_inspect(CLI::App& app, int& status);

// Commands that inspect a run or a machine.
void add_doctor(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_ctl(CLI::App& app, int& status);
void add_top(CLI::App& app, int& status);
void add_calibrate(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);

}  // namespace strata::launcher
