#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "device/lane.h"
#include "device/ops/dora.h"
#include "device/ops/elementwise.h"
#include "device/view.h"
#include "models/adapter.h"
#include "models/flat_range.h"
#include "models/layers/heads/head_parts.h"
#include "models/model.h"

namespace strata::models {

// DoRA of a head's adapter (device/ops/dora.h): with z = x (W + s B A)^T, the logits are g z + bias. g = m / |W + s B
// A| has an element per word; its denominator is treated as a constant in backward. If x has dropout, z is computed
// from x', what dropout leaves of x, and the logits are (x - x') W^T + g z + bias, as in peft. Rows of the table are
// whole, so norms are local to a tile. m and A belong to the part of the norm; while tiles of the table are gathered,
// the workspace has copies of them.
class HeadDora {
 public:
  // The adapter's place, and the magnitudes' for each shard of this rank. `drops`: x has dropout.
  HeadDora(const LowRank& at, std::vector<std::size_t> magnitudes, const HeadTable& table, std::size_t hidden,
           bool drops)
      : at_(at), magnitudes_(std::move(magnitudes)), table_(table), hidden_(hidden), drops_(drops) {}

  bool drops() const { return drops_; }
  std::size_t workspace() const;  // after HeadTable::prepare()
  double flops_of_norms(double words) const;

  // Copies A and m. measure() computes the norms of a tile's words and g, from the tile's W and B.
  void keep(device::Lane&, const Context&, const HeadWorkspace& p, device::ConstView a) const;
  void measure(device::Lane&, const Context&, const HeadWorkspace& p, std::size_t tile, device::ConstView w,
               device::ConstView b) const;
  // Writes the logits from z. With dropout, they are (x - x') W^T before.
  void scale(device::Lane&, const Context&, const HeadWorkspace& p, const HeadTile& at, const TileLogits& logits) const;
  // Adds dm, and adds x's gradient through W to d_input. Replaces the gradient of the logits by z's, after which z's
  // memory is undefined. `dropout`: of all rows of x.
  void backward(device::Lane&, const Context&, const HeadWorkspace& p, const HeadTile& at, device::ConstView w,
                device::View d_logits, device::View z, device::View d_input, device::Dropout dropout) const;
  void round_gradient(device::Lane&, const Context&, const HeadWorkspace& p, const GradientRange& gradients) const;

  // For a single row: computes a tile's g, with row_bytes() of memory, and multiplies the tile's z by it.
  std::size_t row_bytes() const;
  void measure_row(device::Lane&, const ParameterRange& parameters, std::size_t tile, device::ConstView w,
                   device::ConstView a, device::ConstView b, device::View scales, device::View memory) const;
  static void scale_row(device::Lane&, device::ConstView scales, device::View logits);

 private:
  template <typename V>
  V magnitudes(const FlatRange<V>& flat, std::size_t tile) const {
    return flat.sub(magnitudes_[table_.shard(tile)] + table_.tiles().row_in_shard(tile), table_.rows(tile));
  }
  device::View words(const Slot& slot, const Context& c, std::size_t tile) const {
    return table_.words_in(slot.of(c.workspace), tile);
  }
  std::size_t max_words() const { return table_.tiles().widths()[0]; }
  device::DoraShape shape(std::size_t words) const { return {words, hidden_, at_.rank, false, at_.scale}; }

  LowRank at_;
  std::vector<std::size_t> magnitudes_;
  const HeadTable& table_;
  std::size_t hidden_;
  bool drops_;
};

}  // namespace strata::models
