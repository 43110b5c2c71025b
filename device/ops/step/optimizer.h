#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/numeric/storage_format.h"
#include "device/step_scalars.h"
#include "device/view.h"

namespace strata::device {

enum class Algorithm : std::uint8_t { adamw, lion, sgd };

// The number of moments per element.
constexpr int moment_count(Algorithm algorithm) {
  return algorithm == Algorithm::adamw ? 2 : 1;
}

// Random streams at sites from here on round moments; the sites below belong to dropout.
inline constexpr std::uint32_t kMomentSites = 0x80000000u;

// The optimizer's options, in fp64 as in the recipe: 1 - beta2 from a float of 0.999 would be wrong in its fifth digit.
//   adamw  decoupled AdamW (Loshchilov & Hutter 2019) as PyTorch computes it;
//   lion   c = beta1 m + (1 - beta1) g; p -= rate (sign(c) + weight_decay p); m = beta2 m + (1 - beta2) g
//          ("Symbolic Discovery of Optimization Algorithms", Chen et al. 2023);
//   sgd    PyTorch's SGD with momentum, no dampening, not Nesterov's: g += weight_decay p; m = momentum m + g;
//          p -= rate m.
struct Optimizer {
  Algorithm algorithm = Algorithm::adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;  // adamw; lion without eps
  double momentum = 0.9;                         // sgd
  double weight_decay = 0.1;
};

// The operands of an update of consecutive elements of one tensor in a unit's flat buffer. A tensor's update may be cut
// anywhere, and its parts may run in any order, as long as each starts at a multiple of kMomentBlock elements.
struct UpdateOperands {
  ConstView first, second;  // the gradient's two parts, see update(); second may be empty
  View master;              // fp32
  View parameter;           // compute dtype; empty if the master is the parameter
  StorageFormat format = StorageFormat::fp32;
  std::byte *moment1 = nullptr, *moment2 = nullptr;  // stored_bytes(format, elements) each; moment2: adamw's
  bool decay = true;                                 // weight_decay applies
  // The place of the elements. Together with seed and step, it determines the random numbers that round bf16 moments.
  std::uint32_t unit = 0;
  std::size_t begin = 0;  // the first element's index in the unit with all its virtual shards
};

// How a step that skips its update (scalars->skip, read when the operation runs) treats the parameter. Nothing else is
// written then.
enum class OnSkip : std::uint8_t { leave_parameter, rewrite_parameter };

// One pass over the elements: takes the gradient ((+0 + first[i]) + second[i]) * scalars->gradient_factor, updates
// master and moments, and writes `parameter` from the master, rounded. The operation is elementwise, with a fixed order
// of fused multiply-adds and IEEE sqrt and division, so every device, vector width, number of threads and cut gives the
// same bits. Moments are used at full precision and rounded to their format afterwards.
void update(Lane&, const Optimizer&, const StepScalars*, const UpdateOperands&, OnSkip = OnSkip::leave_parameter);

}  // namespace strata::device
