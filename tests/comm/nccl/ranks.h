#pragma once
#include <chrono>
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/nccl/communicator.h"
#include "comm/nccl/library.h"
#include "comm/nccl/watch.h"
#include "tests/comm/run_threads.h"

namespace strata::comm {

// One rank, a thread with its own GPU: the NCCL objects of a world, as separate parts that a test can control.
class Rank {
 public:
  Rank(World& of, std::chrono::milliseconds timeout)
      : world(of), device{device::Kind::cuda, of.rank()}, watch(of, device, timeout) {}

  std::unique_ptr<Communicator> open(device::Lane& lane) {
    ncclUniqueId id{};
    if (world.rank() == 0) (void)nccl().ncclGetUniqueId(&id);
    const std::string text = world.exchange(id.internal)[0];
    text.copy(id.internal, sizeof id.internal - 1);
    return std::make_unique<NcclCommunicator>(watch, lane, all_ranks(world.rank(), world.size()), id);
  }
  device::Lane lane(const char* name) { return {name, 1, world.rank(), world.abort_token(), device}; }

  World& world;
  const device::Device device;
  NcclWatch watch;
};

inline void run_ranks(int ranks, std::chrono::milliseconds timeout, const std::function<void(Rank&)>& f) {
  run_threads(ranks, [&](World& world) {
    Rank rank(world, timeout);
    f(rank);
  });
}

}  // namespace strata::comm
