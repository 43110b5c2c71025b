#pragma once

namespace CLI {
class App;
}

namespace strata::launcher {

// What looks at a run or at a machine. If the command line names the command, parsing runs it, and sets `status` to its
// exit code.
void add_doctor(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_ctl(CLI::App& app, int& status);
void add_top(CLI::App& app, int& status);
void add_calibrate(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);

}  // namespace strata::launcher
