#pragma once
#include "comm/communicator.h"

namespace strata::comm {

// Throws Error if not.
void expect(bool ok, World& world, const char* what, int round);

// Collective: every collective of a world brings the bytes that it should, and counts them. Rank 0 prints that.
void check(World& world);

}  // namespace strata::comm
