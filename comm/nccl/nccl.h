#pragma once
// comm/nccl/ is the collectives of GPUs: a communicator on a CUDA lane (communicator.h), the thread that ends what
// hangs (watch.h), and the library as it was found (library.h). absent.cc stands in if there is no nccl.h.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "device/device.h"

namespace strata::comm {

// How long no collective may end while some are under way: a rank may read its data, or write its part of a checkpoint,
// while the others wait for it.
inline constexpr std::chrono::seconds kNcclPatience(600);

// The world for ranks that compute on `device`, each its own: on GPUs that no two ranks share, its communicators on
// lanes of the device are NCCL's, bootstrapped over `world`, which it owns and leaves all else to. Elsewhere, and
// if `backend` asks for another, `world` itself. Collective: all ranks get the same. If all have GPUs and
// `backend` leaves the choice, but it is not NCCL, left_out() is told why. A collective that takes longer than
// `patience` ends the run. Throws AgreedError if Backend::nccl cannot be had, or if ranks found different
// versions of the library.
std::unique_ptr<World> nccl_world(std::unique_ptr<World> world, device::Device device, Backend backend,
                                  const std::function<void(const std::string& why)>& left_out,
                                  std::chrono::milliseconds patience = kNcclPatience);

}  // namespace strata::comm
