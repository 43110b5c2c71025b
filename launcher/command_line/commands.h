#pragma once
// launcher/command_line/ is what `strata COMMAND --help` shows: the options of each command, which are parsed into what
// the command takes (here), of the kinds in argument_kinds.h. If the command line names the command, parsing runs it,
// and sets `status` to its exit code.
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace strata::launcher {

// What plans, starts and runs a recipe.
void add_train(CLI::App& app, int& status);
// ranks_command: the words behind --.
void add_launch(CLI::App& app, int& status, std::vector<std::string> ranks_command);
void add_node_agent(CLI::App& app, int& status);
void add_plan(CLI::App& app, int& status);
void add_eval(CLI::App& app, int& status);
void add_keys(CLI::App& app);

// What works with models and texts.
void add_generate(CLI::App& app, int& status);
void add_predict(CLI::App& app, int& status);
void add_export(CLI::App& app, int& status);
void add_tokenize(CLI::App& app, int& status);
void add_inspect(CLI::App& app, int& status);

// What looks at a run or at a machine.
void add_doctor(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_ctl(CLI::App& app, int& status);
void add_top(CLI::App& app, int& status);
void add_calibrate(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);

}  // namespace strata::launcher
