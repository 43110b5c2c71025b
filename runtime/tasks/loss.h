#pragma once
#include "runtime/tasks/pass.h"

namespace strata::runtime {

// Forward, loss and backward of the last unit for one micro-batch. In a forward-only plan: its forward and loss, or the
// logits of the last row if the run generates.
struct Loss {
  UnitCall call;
  int residual = -1;                          // gradient of its input
  int gradients = -1, shared_gradients = -1;  // for its own parameters; for the shared ones

  void add(Draft& draft) const;
  static void run(Site& site, const Task& task, device::Lane& lane);
};

// One step of the same, by tiles of the unit's table, which may be another unit's. Steps of the norm work on the unit's
// first part, the others on a tile.
struct TiledLoss {
  UnitPart which;  // the loss unit and the number of the tile
  int micro_batch;
  models::LossStep step;
  UnitPart gathered;   // what holds the parameters
  ElementRange range;  // of its flat buffer: the parameters, or their gradients
  int parameters;      // the unit's own, or shared, as `gathered` says; -1: of its own none is trained
  int frozen = -1;     // those of its own that are not trained
  int x = -1;          // its input; none: the step is about a tile
  Written workspace;   // one for all steps
  int residual = -1;   // gradient of its input, for the last step
  int gradients = -1;  // for these parameters, in the steps that compute a gradient

  void add(Draft& draft) const;
};

}  // namespace strata::runtime
