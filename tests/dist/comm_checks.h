#pragma once
#include <cstddef>
#include <string>

#include "comm/communicator.h"

namespace strata::comm {

// Throws Error if the condition is false.
void expect(bool ok, World& world, const char* what, int round);

// Collective: checks that every collective of a world transfers the right bytes and counts them. Rank 0 prints the
// result.
void check(World& world);

// The resident bytes of this process's mappings of memory files whose names begin with a match of the pattern.
std::size_t resident_bytes(const std::string& pattern);
// Bytes of other ranks' memory that count towards this rank's resident set, because it has read them in place and not
// released them (shared memory between processes; otherwise 0).
std::size_t borrowed_bytes(const World& world);

}  // namespace strata::comm
