#pragma once
#include <cstddef>
#include <memory>

#include "comm/collectives.h"
#include "comm/communicator.h"

namespace strata::comm {

// The host memory that one lane's collectives use if they are staged.
inline constexpr std::size_t kStagedBytes = std::size_t{16} << 20;

// The host's collectives for `lane`. On the CPU they are queued in the lane directly. Otherwise they go piece by piece
// through staging memory of the host, which is how ranks that share a GPU move data: the lane copies, and the host
// calls no driver (see Event::Twin). Sizes must then be even, as those of everything that GPU lanes send are.
// Collective: the world allocates the staging. Destroy the communicator after a synchronize() of the lane, or after the
// lane. `group`: that of `collectives`.
std::unique_ptr<Communicator> communicator_for(World& world, device::Lane& lane, const Group& group,
                                               std::unique_ptr<Collectives> collectives);

}  // namespace strata::comm
