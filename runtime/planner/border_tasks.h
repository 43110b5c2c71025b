#pragma once
#include <initializer_list>
#include <utility>

#include "runtime/plan/draft.h"

namespace strata::runtime {

// The part of a plan in which two steps meet: what the host writes before a step and reads after it, the copies of that
// on a GPU, and what a checkpoint reads of the state that the step before left.
class BorderTasks {
 public:
  // Adds the buffers of the host that stand for the plan's control on a GPU (host_control), and the one that
  // checkpoints pass through.
  explicit BorderTasks(Draft& draft);

  // Adds a checkpoint's tasks, if the run writes any.
  void save_state();
  void begin();
  void end();

 private:
  using Member = int ControlBuffers::*;
  // Copies of whole buffers between a GPU and the host.
  void copy(bool up, std::initializer_list<Member> buffers);

  Draft& d_;
  int checkpoint_ = -1;
};

}  // namespace strata::runtime
