#include "comm/agreement.h"
#include "comm/nccl.h"

namespace strata::comm {

std::unique_ptr<World> nccl_world(std::unique_ptr<World> world, device::Device, Backend backend,
                                  const std::function<void(const std::string& why)>&, std::chrono::milliseconds) {
  if (backend == Backend::nccl)
    throw AgreedError(
        Exit::usage,
        "comm.backend = nccl, but this strata was built without NCCL: build it where nvcc and nccl.h are, or "
        "use comm.backend = auto");
  return world;
}

}  // namespace strata::comm
