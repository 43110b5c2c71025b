#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/task_context.h"

namespace strata::runtime {

// A message from one pipeline stage to another. For each micro-batch, neighbours send the activations after a stage's
// last unit, or their gradient. Once per step (micro_batch -1), stages send parameters or gradients that a unit shares
// with a unit of another stage. Whole buffers are sent. The plans of both stages list the same messages in the same
// order.
struct StageMessage {
  int unit, micro_batch;
  int peer;       // the other stage
  bool backward;  // gradients, which have a separate lane
  int buffer;
};

// Sends a message to the peer, or receives it from there.
struct SendToStage {
  StageMessage message;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};
struct ReceiveFromStage {
  StageMessage message;

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
