#pragma once
#include "runtime/tasks/pass.h"

namespace strata::runtime {

// Forward, loss and backward of the last unit for one micro-batch. In a forward-only plan: its forward and loss, or the
// logits of the last row if the run generates.
struct Loss {
  UnitCall call;
  OutputBuffer residual = {};                          // gradient of its input
  OutputBuffer gradients = {}, shared_gradients = {};  // for own and shared parameters; none: not trained
  int cache = -1;                                      // as in Forward

  void add(Draft& draft) const;
  static void run(TaskContext& context, const Task& task, device::Lane& lane);
};

// One step of a loss that runs by tiles of its table, which may be another unit's. Steps of the norm work on the unit's
// first part, the others on one tile.
struct TiledLoss {
  UnitPart which;  // the loss unit, and the tile as its part
  int micro_batch;
  models::LossStep step;
  UnitPart gathered;       // the unit and part that hold the parameters
  ElementRange range;      // elements of that unit's flat buffer of parameters or gradients
  int parameters;          // the buffer of `gathered`; -1: none of the unit's own are trained
  int frozen = -1;         // the unit's own frozen parameters; -1: none
  int x = -1;              // the unit's input; -1 in steps on a tile
  OutputBuffer workspace;  // shared by all steps
  int residual = -1;       // gradient of the input, in the last step
  int gradients = -1;      // the parameters' gradients, in the steps that compute them

  void add(Draft& draft) const;
};

}  // namespace strata::runtime
