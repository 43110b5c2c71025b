#pragma once
#include <cstdint>
#include <optional>

namespace strata::runtime {

// State of fp16 loss scaling: the scale, and the number of consecutive steps without a non-finite gradient.
struct LossScale {
  float scale = 1;
  std::int64_t growth_tracker = 0;
  bool operator==(const LossScale&) const = default;
};

// The evaluations between steps: the best one so far by evaluation.metric, and the newest.
struct Best {
  std::int64_t step = 0;
  double value = 0;
  std::int64_t since = 0;   // evaluations since then, none of them better
  std::int64_t newest = 0;  // the step of the newest evaluation
  bool operator==(const Best&) const = default;
};

// A run's state between two steps, other than its tensors.
struct Progress {
  std::int64_t step = 0, updates = 0;  // updates: Adam's t
  std::uint64_t next_micro_batch = 0;  // global index of the next step's first one
  std::uint64_t tokens = 0;            // trained on so far
  LossScale loss_scale;
  std::optional<Best> best;
  bool operator==(const Progress&) const = default;
};

}  // namespace strata::runtime
