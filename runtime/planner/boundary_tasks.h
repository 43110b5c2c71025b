#pragma once
#include <initializer_list>
#include <vector>

#include "runtime/plan/draft.h"

namespace strata::runtime {

// The tasks at the boundary between two steps: the host's writes before a step and its reads after it, the copies of
// both on a GPU, and a checkpoint's reads of the state that the previous step left.
class BoundaryTasks {
 public:
  // Adds the host's copies of the plan's control buffers on a GPU (host_control), and the staging buffer of
  // checkpoints.
  explicit BoundaryTasks(Draft& draft);

  // Adds a checkpoint's tasks, if the run writes any.
  void save_state();
  // begin() and end() add the tasks before and after the step proper.
  void begin();
  void end();

 private:
  using Member = int ControlBuffers::*;
  // Adds one task that copies the buffers between a GPU and the host; nothing on the CPU.
  void copy(bool up, std::initializer_list<Member> buffers);

  Draft& d_;
  int checkpoint_ = -1;
};

// Adds the buffers that live from step to step, except the units' state: the batch, scalars, counters, constants, the
// index of sequences, scores, and caches of keys and values. Returns each unit's cache; -1: it has none.
std::vector<int> add_lasting_buffers(Draft& draft);

}  // namespace strata::runtime
