#pragma once

namespace CLI {
class App;
}

namespace strata::launcher {

// What works with models and texts. If the command line names the command, parsing runs it, and sets `status` to its
// exit code.
void add_generate(CLI::App& app, int& status);
void add_predict(CLI::App& app, int& status);
void add_export(CLI::App& app, int& status);
void add_tokenize(CLI::App& app, int& status);
void add_inspect(CLI::App& app, int& status);

}  // namespace strata::launcher
