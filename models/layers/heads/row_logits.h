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
  // adapter: null if there is none.
  RowLogits(const TableTiles& tiles, std::size_t hidden, bool centred, const HeadAdapter* adapter, device::DType dtype);

  std::size_t bytes() const { return bytes_; }  // of workspace
  // x: the row. `holder`: where the table's rows lie. `logits`: of this rank's shards.
  void run(device::Lane&, const Context&, const NormPart& norm, const HeadTable& table, const ParameterRange& holder,
           const HeadAdapter* adapter, device::ConstView x, device::View logits) const;

 private:
  std::size_t hidden_;
  Slot mean_, rstd_, no_bias_, normed_, down_, added_, of_dora_;
  std::size_t bytes_ = 0;
};

}  // namespace strata::models
