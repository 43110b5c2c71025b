#pragma once
#include <cstddef>

#include "device/lane.h"
#include "models/model.h"

namespace strata::models {

// The rows of a micro-batch that enter a head's loss: those that the batch lists (RunShape::loss_rows), or all.
class LossRows {
 public:
  LossRows(const RunShape& run, std::size_t width)
      : tokens_(run.tokens()), width_(width), picks_(run.loss_rows > 0), count_(picks_ ? run.loss_rows : tokens_) {}

  bool picks() const { return picks_; }  // otherwise it takes all rows in place
  std::size_t count() const { return count_; }
  // Bytes of scratch that put_back() needs.
  std::size_t scratch_bytes() const;

  // The selected rows of x, [tokens, width], without gaps: in `picked`, or x itself.
  device::ConstView pick(device::Lane&, const Context&, device::ConstView x, device::View picked) const;
  // If it picks: dx, [tokens, width], is d in the rows that entered the loss, and 0 elsewhere.
  void put_back(device::Lane&, const Context&, device::ConstView d, device::View dx, device::View scratch) const;

 private:
  std::size_t tokens_, width_;
  bool picks_;
  std::size_t count_;
};

}  // namespace strata::models
