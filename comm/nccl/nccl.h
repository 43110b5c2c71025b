#pragma once
// comm/nccl/ holds the collectives for GPUs: a communicator on a CUDA lane (communicator.h), the thread that ends hung
// operations (watch.h), and the library as found at run time (library.h). absent.cc replaces them if the program is
// built without nccl.h.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "device/device.h"

namespace strata::comm {

// The run ends if collectives are in flight and none completes for this long. The limit is long because a rank may be
// reading its data, or writing its part of a checkpoint, while the others wait for it.
inline constexpr std::chrono::seconds kNcclTimeout(600);

// The world for ranks that compute on `device`, one each. If no two ranks share a GPU, communicators on the device's
// lanes are NCCL's. They are bootstrapped over `world`, which the result owns and uses for everything else. Without
// GPUs, or if `backend` asks for another backend, the result is `world` itself. Collective: all ranks get the same
// kind. If all ranks have GPUs and `backend` is automatic, but NCCL is not used, left_out() receives the reason. A
// collective that takes longer than `timeout` ends the run. Throws AgreedError if Backend::nccl is impossible, or if
// ranks found different versions of the library.
std::unique_ptr<World> nccl_world(std::unique_ptr<World> world, device::Device device, Backend backend,
                                  const std::function<void(const std::string& why)>& left_out,
                                  std::chrono::milliseconds timeout = kNcclTimeout);

}  // namespace strata::comm
