#pragma once
#include <initializer_list>
#include <utility>
#include <vector>

#include "runtime/plan/draft.h"

namespace strata::runtime {

// The part of a plan in which two steps meet: what the host writes before a step and reads after it, the copies of that
// on a GPU, and what a checkpoint reads of the state that the step before left.
class BorderTasks {
 public:
  // Of the device, and of the host: pending. -1: there is none.
  struct Buffers {
    int batch, state, losses, squares, logits, pending;
  };
  // Adds the buffers of the host that stand for the device's on a GPU, and the one that checkpoints pass through.
  BorderTasks(Draft& draft, const Buffers& buffers);

  // Adds a checkpoint's tasks, if the run writes any.
  void save_state();
  void begin();
  void end();

 private:
  int of_host(int buffer) const;
  void copy(TaskKind kind, LaneId lane, std::initializer_list<int> buffers);

  Draft& d_;
  const Buffers b_;
  std::vector<std::pair<int, int>> mirrors_;  // buffers of a GPU, and those of the host that stand for them
  int checkpoint_ = -1;
};

}  // namespace strata::runtime
