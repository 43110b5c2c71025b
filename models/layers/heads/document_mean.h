#pragma once
#include <cstddef>

#include "device/ops/attention/attention.h"
#include "models/layers/slots.h"
#include "models/model.h"

namespace strata::models {

// For every row, the mean over the rows of its document; 0 for rows outside of documents. It is computed as attention
// with equal scores, and so adds in attention's order: the bits of a document's mean do not depend on its neighbours.
class DocumentMean {
 public:
  // heads: divides `hidden` like the model's attention heads. Reserves its place in a unit's workspace.
  DocumentMean(std::size_t hidden, std::size_t heads, const RunShape& run, Slots& workspace);

  // x: [tokens, hidden]. The result lies in the workspace, in the same place as that of backward().
  device::View forward(device::Lane&, const Context&, device::ConstView x) const;
  // The gradient of x, given that of the result of forward(); lies in the workspace too.
  device::View backward(device::Lane&, const Context&, device::ConstView x, device::ConstView dy) const;

 private:
  device::AttentionShape shape_;
  Slot scratch_, zeros_, mean_, lse_, d_queries_, d_keys_, dx_;
};

}  // namespace strata::models
