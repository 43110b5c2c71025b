#pragma once
#include "runtime/plan/draft.h"
#include "runtime/tasks/site.h"

namespace strata::runtime {

// What crosses the border between two pipeline stages for one micro-batch: the activations after the lower stage's last
// unit, or the gradient of these. The plans of both stages list the same crossings in the same order.
struct Crossing {
  int unit;  // of the own stage: the one at the border
  int micro_batch;
  bool backward;  // a gradient, which goes to the stage before
  int buffer;
};

// Sends what crosses to the neighbouring stage, or receives it from there.
struct SendToStage {
  Crossing crossing;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};
struct ReceiveFromStage {
  Crossing crossing;

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

}  // namespace strata::runtime
