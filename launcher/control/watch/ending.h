#pragma once
#include <string>

#include "base/abort.h"

namespace strata::launcher::control {

// Ends this rank for a reason that the control plane found: sets the run's token, with which every wait of the program
// ends, and if the process is still there some seconds later (in a call of MPI or of a driver that polls no token)
// ends it on the spot, with Exit::failed. Says `text` on stderr if `speaks`. Returns at once; any thread.
void end_run(AbortToken& token, const std::string& text, bool speaks);

}  // namespace strata::launcher::control
