#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "launcher/forecast.h"
#include "runtime/job/search/micro_batch.h"

namespace strata::launcher {

// The predicted speed of a step with a micro-batch of this size. path_per_token: where its time goes.
struct BatchSpeed {
  std::int64_t size;
  std::string_view order;  // planned order of micro-batches and units
  runtime::Memory memory;
  double step_ms, tokens_per_s;
  runtime::BoundSeconds path_per_token;
};

// What `plan --max-batch` finds: the largest micro-batch that fits and, with a machine, the speeds of it and of smaller
// ones, in ascending order: powers of two, or divisors of training.global_batch_size.
struct MaxBatch {
  runtime::LargestBatch largest;
  std::vector<BatchSpeed> speeds;
  bool of_global = false;  // sizes divide a rank's part of training.global_batch_size

  // The size with the most tokens per second; null without a machine, or if nothing fits.
  const BatchSpeed* fastest() const;
};
// Throws what largest_micro_batch() and forecast() throw.
MaxBatch find_max_batch(const runtime::Workload& workload, int ranks, const runtime::Capacity& capacity,
                        const std::optional<runtime::Machine>& machine, int ranks_per_node);

// Lines for people: the largest size, what the next one would need, and which is fastest and why.
std::string max_batch_text(const MaxBatch& found);
// {"size":8,"too_large":{...},"fastest":4,"speeds":[...]}; size is null if nothing fits.
std::string max_batch_json(const MaxBatch& found);

}  // namespace strata::launcher
