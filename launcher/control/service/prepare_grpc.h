#pragma once

namespace strata::launcher::control {

// Before a server or a channel is made. Turns off what gRPC logs, which is of its own insides (a client that does not
// know TLS would fill the run's log with it): GRPC_VERBOSITY in the environment brings it back. Throws Error{failed} if
// the system would refuse the threads or the descriptors that gRPC takes, at which it aborts, or waits for ever.
void prepare_grpc();

}  // namespace strata::launcher::control
