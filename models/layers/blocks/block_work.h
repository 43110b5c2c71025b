#pragma once
#include <cstddef>
#include <span>

#include "device/ops/attention/attention.h"
#include "models/layers/linear/split_linear.h"
#include "models/model.h"

namespace strata::models {

// Unit::work of a transformer block with one linear layer per part, or all of them in one part. `activation`: the bytes
// of x, and of y, which forward reads and writes in addition to what it saves; backward reads what was saved and writes
// as much.
Work block_work(const Unit& block, Pass pass, const PartRange& parts, std::span<const SplitLinear* const> linears,
                const device::AttentionShape& attention, std::size_t activation);

}  // namespace strata::models
