#pragma once
#include <filesystem>
#include <optional>

#include "base/files/descriptor.h"

namespace strata::runtime {

// Keeps a checkpoint from being removed while it is read, and from being read while it is removed: a lock (flock) on
// its manifest, shared among readers. It ends with the object or the process. On file systems without flock it protects
// nothing.
class CheckpointHold {
 public:
  // Waits while the checkpoint is being removed. nullopt if it is gone.
  static std::optional<CheckpointHold> to_read(const std::filesystem::path& checkpoint);
  // Does not wait. nullopt if the checkpoint is being read.
  static std::optional<CheckpointHold> to_remove(const std::filesystem::path& checkpoint);

 private:
  explicit CheckpointHold(int fd) : manifest_(fd) {}

  Descriptor manifest_;  // invalid if it could not be opened; reading then reports why
};

}  // namespace strata::runtime
