#pragma once
#include <cstddef>
#include <memory>

#include "comm/collectives.h"
#include "comm/communicator.h"

namespace strata::comm {

// Host memory that the collectives of one lane take where they are staged.
inline constexpr std::size_t kStagedBytes = std::size_t{16} << 20;

// Collectives of the host as a lane of `lane`'s device can use them: as they are on the CPU; else through staging
// memory of the host, piece by piece, which is how ranks that share a GPU move data. Collective: the world allocates
// it.
std::unique_ptr<Collectives> for_lane(World& world, const device::Lane& lane, std::unique_ptr<Collectives> collectives);

}  // namespace strata::comm
