#pragma once
#include <cstddef>

#include "device/ops/attention/attention.h"
#include "models/layers/slots.h"
#include "models/model.h"

namespace strata::models {

// Of every row the mean over the rows of its document; 0 of rows of no document. It is attention whose scores are all
// alike, and so has its order of sums: the bits of a document's mean do not depend on what lies beside it.
class DocumentMean {
 public:
  // heads: that divide `hidden` as those of the model's attention do. Takes its place in a unit's workspace.
  DocumentMean(std::size_t hidden, std::size_t heads, const RunShape& run, Slots& workspace);

  // x: [tokens, hidden]. What is given back lies in the workspace, as long as that of backward().
  device::View forward(device::Lane&, const Context&, device::ConstView x) const;
  // The gradient of x by that of what forward() gave; lies in the workspace too.
  device::View backward(device::Lane&, const Context&, device::ConstView x, device::ConstView dy) const;

 private:
  device::AttentionShape shape_;
  Slot scratch_, zeros_, mean_, lse_, d_queries_, d_keys_, dx_;
};

}  // namespace strata::models
