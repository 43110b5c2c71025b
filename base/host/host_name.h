#pragma once
// base/host/ is what a process knows of its machine, and of others by their names: its name (here), its own program
// (own_program.h), addresses (look_up.h).
#include <string>

namespace strata {

// The name that this machine, or container, gives itself; "?" if the system does not say.
std::string host_name();

}  // namespace strata
