#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/abort.h"
#include "offload/drive.h"

namespace strata::offload {

inline constexpr std::size_t kMostDrives = 32;

// Moves `size` bytes between `memory` and [offset, offset + size) of a tier that is striped over `drives`, and waits
// for it. Any thread, several at once. Throws Error{failed} naming file, offset and reason; Aborted within half a
// second of the abort, also where requests never come back (their memory has to stay mapped).
void transfer(std::span<const std::unique_ptr<Drive>> drives, bool write, std::uint64_t offset, std::byte* memory,
              std::uint64_t size, const device::AbortToken& abort);

}  // namespace strata::offload
