#pragma once
#include <cstddef>

#include "device/lane.h"

namespace strata::runtime {

// What writes checkpoints: what a plan's tasks of the lane checkpoint do. Called by the thread that issues, to queue
// work in that lane.
class Saver {
 public:
  virtual ~Saver() = default;
  // Reads the unit's state where it lies (Storage::read_state); nothing writes it meanwhile.
  virtual void save(device::Lane& lane, std::size_t unit) = 0;
  // All units were read: makes the checkpoint durable. Nothing of a step waits for it.
  virtual void publish(device::Lane& lane) = 0;
};

}  // namespace strata::runtime
