#include "models/layers/heads/loss_rows.h"

#include "base/error.h"
#include "device/ops/embedding.h"

namespace strata::models {

using device::ConstView;
using device::Lane;
using device::View;

std::size_t LossRows::scratch_bytes() const {
  return picks_ ? device::embedding_backward_workspace(count_, tokens_) : 0;
}

ConstView LossRows::pick(Lane& lane, const Context& c, ConstView x, View picked) const {
  if (!picks_) return x;
  embedding_forward(lane, count_, width_, c.batch.loss_rows, {0, tokens_, tokens_}, x, picked);
  return picked;
}

void LossRows::put_back(Lane& lane, const Context& c, ConstView d, View dx, View scratch) const {
  STRATA_CHECK(picks_);
  embedding_backward(lane, count_, width_, c.batch.loss_rows, {0, tokens_, tokens_}, d, dx, scratch);
}

}  // namespace strata::models
