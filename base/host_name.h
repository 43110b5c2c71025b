#pragma once
#include <string>

namespace strata {

// The name that this machine, or container, gives itself; "?" if the system does not say.
std::string host_name();

}  // namespace strata
