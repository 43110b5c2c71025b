#pragma once
#include <filesystem>
#include <string>

#include "launcher/control/client/client.h"

namespace strata::launcher::control {

struct CtlOptions {
  std::string target;
  std::string token_file, ca, cert, key;  // paths; all but token_file name PEM files
  bool json = false, at_once = false;
};

// The run that the options name, and the credentials for it. Throws Error{usage}.
Target target_of(const CtlOptions& options);

// `strata ctl status|watch|checkpoint|stop|dump|plan`: asks the run and prints the answer. Returns the exit code.
int ctl(const std::string& what, const CtlOptions& options);

// If the options name a run that can only be reached from its own machine, runs the same command there by ssh and does
// not return. Throws Error{failed} if ssh cannot be started.
void go_where_it_is(const std::string& what, const CtlOptions& options);

// "step 120 of 1000, loss 3.2143, ...": the lines of `strata ctl status`.
std::string text_of(const pb::Status& status);
std::string text_of(const pb::Step& step, std::int64_t max_steps);
// The tier's name as the run prints it at its start.
std::string title_of(const pb::Tier& tier, const pb::RunInfo& run);

}  // namespace strata::launcher::control
