#pragma once
#include <cstddef>

#include "device/lane.h"
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// What writes checkpoints: what the tasks of the lane checkpoint do. Called by the thread that issues, to queue work in
// that lane.
class Saver {
 public:
  virtual ~Saver() = default;
  // Reads the unit's state where it lies (Storage::read_state); nothing writes it meanwhile.
  virtual void save(device::Lane& lane, std::size_t unit) = 0;
  // All units were read: makes the checkpoint durable. Nothing of a step waits for it.
  virtual void publish(device::Lane& lane) = 0;
};

// A unit's state, read for a checkpoint, if one begins in the step.
struct Save {
  int unit;
  Written staging;  // memory of the host that all state passes through

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// The checkpoint is made durable.
struct Publish {
  int staging;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
