#pragma once
#include <cstddef>

#include "device/lane.h"
#include "device/numeric/dtype.h"
#include "device/view.h"
#include "models/layers/heads/head_adapter.h"
#include "models/layers/heads/head_parts.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"
#include "models/model.h"

namespace strata::models {

// A head in a run that generates: it computes the logits of a single row.
class RowLogits {
 public:
  // adapter: null if there is none. `shards`: how many of the table's shards this rank has.
  RowLogits(const HeadTable& table, std::size_t shards, std::size_t hidden, bool centred, const HeadAdapter* adapter,
            device::DType dtype);

  std::size_t bytes() const { return bytes_; }  // of workspace
  std::size_t cache_bytes() const { return cache_bytes_; }
  // x: the row. `holder`: where the table's rows lie. `logits`: of this rank's shards.
  void run(device::Lane&, const Context&, const NormPart& norm, const HeadTable& table, const ParameterRange& holder,
           const HeadAdapter* adapter, device::ConstView x, device::View logits) const;

 private:
  std::size_t hidden_;
  Slot mean_, rstd_, no_bias_, normed_, down_, added_, of_dora_;
  Slot scales_;  // DoRA's, in the cache
  std::size_t bytes_ = 0, cache_bytes_ = 0;
};

}  // namespace strata::models
