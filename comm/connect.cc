#include "comm/communicator.h"
#include "device/error.h"

namespace strata::comm {

std::unique_ptr<World> connect(Backend backend, Transport) {
  if (backend == Backend::mpi) fail(Exit::usage, "comm.backend = mpi is not built yet");
  return solo_world();
}

}  // namespace strata::comm
