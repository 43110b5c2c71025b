#pragma once
// base/host/ holds what a process knows about its machine, and about others by their names: its name (here), the
// program's own path (own_program.h), addresses (look_up.h).
#include <string>

namespace strata {

// The name that this machine or container gives itself; "?" if the system has none.
std::string host_name();

}  // namespace strata
