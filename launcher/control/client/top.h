#pragma once
#include <string>
#include <vector>

#include "launcher/control/client/ctl.h"

namespace strata::launcher::control {

// `strata top`: a live view of a run, until it ends or q is pressed; into a pipe a line for what is new each second.
// Returns the exit code.
int top(const CtlOptions& options);

struct Screen {
  int columns = 80, rows = 24;
  bool unicode = true;
};
// What the view shows: lines, each with an end, of the screen's size at most. `steps`: for the curve of the loss.
std::string screen_text(const pb::Status& status, const std::vector<pb::Step>& steps, const Screen& screen);

}  // namespace strata::launcher::control
