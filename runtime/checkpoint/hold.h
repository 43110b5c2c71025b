#pragma once
#include <filesystem>
#include <optional>

#include "base/files/descriptor.h"

namespace strata::runtime {

// Keeps a checkpoint from being removed while it is read, and from being read while it is removed: a lock (flock) on
// its manifest, shared by those who read it. It ends with the object, and with the process, however that ends. On a
// file system without such locks it keeps nothing.
class CheckpointHold {
 public:
  // For reading; waits for one who removes it. nullopt: it is gone.
  static std::optional<CheckpointHold> to_read(const std::filesystem::path& checkpoint);
  // For removing it; does not wait. nullopt: somebody reads it.
  static std::optional<CheckpointHold> to_remove(const std::filesystem::path& checkpoint);

 private:
  explicit CheckpointHold(int fd) : manifest_(fd) {}

  Descriptor manifest_;  // none: it could not be opened, and whoever reads on says why
};

}  // namespace strata::runtime
