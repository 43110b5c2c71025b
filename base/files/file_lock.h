#pragma once
#include <filesystem>

#include "base/files/descriptor.h"

namespace strata {

// Locks an open file (flock) against other processes, without waiting. The lock ends with the descriptor and with the
// process, however the process ends, so a crashed run leaves no lock. Returns 0 or the system's error; EWOULDBLOCK
// means that another process holds the lock.
int lock_file(const Descriptor& file);
// Whether `path` still names the open file, and not through a link.
bool lies_at(const Descriptor& file, const std::filesystem::path& path);

}  // namespace strata
