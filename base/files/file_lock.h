#pragma once
#include <filesystem>

#include "base/files/descriptor.h"

namespace strata {

// Locks an open file (flock) against other processes, without waiting. The lock ends with the descriptor, and with the
// process, however that ends: a run that crashed leaves none. 0, or the system's reason; EWOULDBLOCK: another holds it.
int lock_file(const Descriptor& file);
// Whether the file that is open still lies at `path`, and is no link there.
bool lies_at(const Descriptor& file, const std::filesystem::path& path);

}  // namespace strata
