#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/abort.h"
#include "offload/drive.h"

namespace strata::offload {

inline constexpr std::size_t kMaxDrives = 32;
inline constexpr std::size_t kMaxRanges = 8;

// `size` bytes of memory, and [offset, offset + size) of a tier.
struct Range {
  std::uint64_t offset;
  std::byte* memory;
  std::size_t size;
};

// Moves the bytes of up to kMaxRanges ranges, all in flight at once, between memory and a tier that is striped over
// `drives`, and waits for them. Any thread; several calls at once. Throws Error{failed} with file, offset and reason.
// Throws Aborted within half a second of the abort, even if requests never complete; their memory then has to stay
// mapped.
void transfer(std::span<const std::unique_ptr<Drive>> drives, bool write, std::span<const Range> ranges,
              const AbortToken& abort);

}  // namespace strata::offload
