#pragma once
#include <cstdint>

namespace strata::device {

// The values that change from step to step, in one small buffer on the device. So the step's work is issued (or
// replayed as a graph) unchanged. The host writes the first group before the step. The consensus task writes the second
// group before the first update.
struct StepScalars {
  std::uint64_t seed;               // training.seed, the key of every counter-based random number
  std::uint64_t first_micro_batch;  // global index of this step's first micro-batch (g = 0, rank = 0)
  float loss_gradient;              // d(objective)/d(loss of one label): loss scale / label count of the step
  float unscale;                    // 1 / loss scale
  float learning_rate;
  float bias_correction1;  // 1 - beta1^t
  float bias_correction2;  // 1 - beta2^t
  float max_grad_norm;     // 0: no clipping

  float gradient_factor;  // unscale * clip factor; the update multiplies each gradient by it
  std::uint32_t skip;     // 1: no update in this step (a gradient was not finite)
};

}  // namespace strata::device
