#pragma once
#include <string>
#include <vector>

#include "launcher/control/client/ctl.h"

namespace strata::launcher::control {

// `strata top`: a live view of a run until it ends or q is pressed. Into a pipe it prints one line per second if there
// is news. Returns the exit code.
int top(const CtlOptions& options);

struct Screen {
  int columns = 80, rows = 24;
  bool unicode = true;
};
// The view as lines, each with its line break, that fit the screen. `steps` are the points of the loss curve.
std::string screen_text(const pb::Status& status, const std::vector<pb::Step>& steps, const Screen& screen);

}  // namespace strata::launcher::control
