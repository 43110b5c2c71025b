#pragma once
#include <string_view>
#include <vector>

#include "runtime/plan/draft.h"

namespace strata::runtime {

// The ways between tiers, as copies of a plan being written. A way between device and NVMe leads over the host. `what`
// names the buffers of the copies.

// One step of the way towards `to`: slices that lie in the tier `from` beside it, copied by one task. Others stay as
// they are. `kind`: of the copies' buffers.
void hop(Draft& draft, std::vector<Slice>& slices, Tier from, Tier to, int unit, std::string_view what, Kind kind);
// Copies in `to` (device or host) of what lies elsewhere; what lies there already is itself.
std::vector<Slice> bring(Draft& draft, std::vector<Slice> slices, Tier to, int unit, std::string_view what,
                         Kind kind = Kind::staging);
// The contents of each slice to its home, if that is another.
void put(Draft& draft, std::vector<Slice> from, std::vector<Slice> homes, int unit, std::string_view what);

}  // namespace strata::runtime
