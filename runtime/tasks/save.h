#pragma once
#include <cstddef>

#include "device/lane.h"
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// Writes checkpoints: the work of the checkpoint lane's tasks. The issuing thread calls it to queue work in that lane.
class Saver {
 public:
  virtual ~Saver() = default;
  // Reads the unit's state in place (Storage::read_state); no task writes it meanwhile.
  virtual void save(device::Lane& lane, std::size_t unit) = 0;
  // Called after all units were saved: makes the checkpoint durable. No task of a step waits for it.
  virtual void publish(device::Lane& lane) = 0;
};

// Reads a unit's state for a checkpoint, if one begins in the step.
struct Save {
  int unit;
  Written staging;  // host memory through which all state passes

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// Makes the checkpoint durable.
struct Publish {
  int staging;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
