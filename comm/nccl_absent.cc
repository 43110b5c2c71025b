#include "comm/agreement.h"
#include "comm/nccl.h"

namespace strata::comm {

std::unique_ptr<World> nccl_world(std::unique_ptr<World> world, device::Device, Backend backend, std::string& why_not) {
  why_not = "this strata was built without NCCL";
  if (backend == Backend::nccl)
    throw AgreedError(Exit::usage, "comm.backend = nccl, but " + why_not +
                                       ": build it where CUDA and nccl.h are, or use "
                                       "comm.backend = auto");
  return world;
}

}  // namespace strata::comm
