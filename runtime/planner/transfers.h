#pragma once
#include <string_view>
#include <vector>

#include "runtime/plan/draft.h"

namespace strata::runtime {

// Copies between tiers, added to a plan being written. A copy between device and NVMe passes through the host. `what`
// names the new buffers, and `kind` is their kind.

// Adds one task that copies the slices in tier `from` to the neighbouring tier `to`, and replaces them by their copies.
// Slices in other tiers stay as they are.
void hop(Draft& draft, std::vector<Slice>& slices, Tier from, Tier to, int unit, std::string_view what, Kind kind);
// Returns the slices in tier `to` (device or host): copies of those that are elsewhere, the others unchanged.
std::vector<Slice> bring(Draft& draft, std::vector<Slice> slices, Tier to, int unit, std::string_view what,
                         Kind kind = Kind::staging);
// Copies the contents of each slice to its home, unless it is the same buffer.
void put(Draft& draft, std::vector<Slice> from, std::vector<Slice> homes, int unit, std::string_view what);

}  // namespace strata::runtime
