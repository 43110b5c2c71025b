#pragma once
#include <string>
#include <vector>

namespace strata::launcher::control {

// Addresses of this machine that others may reach it by: those of the interface that is named (by its name or one of
// its addresses), else of all that are up, loopback last. Throws Error{usage} naming what there is if there is no such
// one.
std::vector<std::string> addresses_of(const std::string& interface);

// "ipv4:10.0.0.1:5000,10.1.0.1:5000": several places to try, as gRPC names them.
std::string grpc_target(const std::vector<std::string>& addresses, int port);

}  // namespace strata::launcher::control
