#include <algorithm>

#include "comm/agreement.h"
#include "comm/nccl/nccl.h"

namespace strata::comm {

std::unique_ptr<World> nccl_world(std::unique_ptr<World> world, device::Device device, Backend backend,
                                  const std::function<void(const std::string& why)>& left_out,
                                  std::chrono::milliseconds) {
  if (backend == Backend::nccl)
    throw AgreedError(Exit::usage,
                      "comm.backend = nccl, but this strata was built without NCCL: build it with nvcc and nccl.h "
                      "installed, or use comm.backend = auto");
  const std::vector<std::string> all = world->exchange(device.kind == device::Kind::cpu ? "cpu" : "gpu");
  const bool gpus = std::find(all.begin(), all.end(), "cpu") == all.end();
  if (gpus && world->size() > 1 && backend == Backend::automatic) left_out("this strata was built without it");
  return world;
}

}  // namespace strata::comm
