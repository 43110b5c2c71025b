#pragma once
#include <cstddef>
#include <memory>

#include "comm/collectives.h"
#include "comm/communicator.h"

namespace strata::comm {

// Host memory that the collectives of one lane take where they are staged.
inline constexpr std::size_t kStagedBytes = std::size_t{16} << 20;

// Collectives of the host for `lane`: queued in it as they are on the CPU; else through staging memory of the host,
// piece by piece, which is how ranks that share a GPU move data: the lane copies, and the host calls no driver (see
// Event::Twin); sizes are then even, as all that lanes of a GPU send is. Collective: the world allocates the staging.
// Destroyed after a synchronize() of the lane, or after the lane.
std::unique_ptr<Communicator> communicator_for(World& world, device::Lane& lane,
                                               std::unique_ptr<Collectives> collectives);

}  // namespace strata::comm
