#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "launcher/forecast.h"
#include "runtime/job/micro_batch.h"

namespace strata::launcher {

// How fast a step with a micro-batch is predicted to be; path: what its time goes to.
struct BatchSpeed {
  std::int64_t size;
  std::string_view order;  // of micro-batches and units, as planned
  runtime::Memory memory;
  double step_ms, tokens_per_s;
  runtime::BoundSeconds path_per_token;
};

// What `plan --max-batch` finds: the largest micro-batch that fits, and with a machine the speed of it and of smaller
// ones, by rising size: powers of two, or what divides training.global_batch_size.
struct MaxBatch {
  runtime::LargestBatch largest;
  std::vector<BatchSpeed> speeds;
  bool of_global = false;  // a micro-batch divides a rank's part of training.global_batch_size

  // The one with the most tokens per second; null without a machine, or if nothing fits.
  const BatchSpeed* fastest() const;
};
// Throws what largest_micro_batch() and forecast() throw.
MaxBatch find_max_batch(const runtime::Workload& workload, int ranks, const runtime::Capacity& capacity,
                        const std::optional<runtime::Machine>& machine, int ranks_per_node);

// For people, in lines: the largest, what the next one would take, and which one is fastest and why.
std::string max_batch_text(const MaxBatch& found);
// {"size":8,"too_large":{...},"fastest":4,"speeds":[...]}; size is null if nothing fits.
std::string max_batch_json(const MaxBatch& found);

}  // namespace strata::launcher
