#pragma once
#include <cstddef>
#include <memory>

#include "comm/collectives.h"
#include "comm/communicator.h"

namespace strata::comm {

// Bytes of host memory that one lane's collectives use if they are staged.
inline constexpr std::size_t kStagedBytes = std::size_t{16} << 20;

// The host's collectives for `lane`. On the CPU, they are queued directly in the lane. Otherwise, for example between
// ranks that share a GPU, data passes piece by piece through staging memory on the host: the lane copies, and the host
// calls no driver (see Event::Twin). Sizes must then be even, which holds for everything that GPU lanes send.
// Collective: the world allocates the staging. Destroy the communicator after a synchronize() of the lane, or after the
// lane. `group`: the group of `collectives`.
std::unique_ptr<Communicator> communicator_for(World& world, device::Lane& lane, const Group& group,
                                               std::unique_ptr<Collectives> collectives);

}  // namespace strata::comm
