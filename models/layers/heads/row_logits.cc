#include "models/layers/heads/row_logits.h"

#include "device/ops/products/product.h"

namespace strata::models {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

RowLogits::RowLogits(const HeadTable& table, std::size_t shards, std::size_t hidden, bool centred,
                     const HeadAdapter* adapter, DType dtype)
    : hidden_(hidden) {
  Slots work;
  mean_ = work.add(1, DType::fp32);
  rstd_ = work.add(1, DType::fp32);
  no_bias_ = work.add(centred ? hidden : 0, dtype);
  normed_ = work.add(hidden, dtype);
  down_ = work.add(adapter ? adapter->rank() : 0, dtype);
  added_ = work.add(adapter ? table.tiles().widths()[0] : 0, DType::fp32);
  of_dora_ = work.add_bytes(adapter ? adapter->dora_row_bytes() : 0);
  bytes_ = work.bytes();
  Slots cache;
  scales_ = cache.add(adapter && adapter->has_dora() ? shards * table.padded_words() : 0, DType::fp32);
  cache_bytes_ = cache.bytes();
}

void RowLogits::run(Lane& lane, const Context& c, const NormPart& norm, const HeadTable& table,
                    const ParameterRange& holder, const HeadAdapter* adapter, ConstView x, View logits) const {
  const View normed = normed_.of(c.workspace), down = down_.of(c.workspace);
  norm.forward(lane, c.parameters, x, normed, mean_.of(c.workspace), rstd_.of(c.workspace), no_bias_.of(c.workspace));
  if (adapter) adapter->project_row(lane, c.parameters, normed, down);
  for (std::size_t tile = 0; tile < table.count(); ++tile) {
    const View of_tile = table.logits_in(logits, tile);
    const ConstView w = table.rows_in(holder, tile);
    matvec(lane, {table.rows(tile), hidden_}, w, normed, {}, of_tile);
    if (!adapter) continue;
    const View scales = scales_.size > 0 ? table.words_in(scales_.of(c.cache.values), tile) : View{};
    if (scales && c.cache.first == 0)
      adapter->measure_row(lane, c.parameters, tile, w, scales, of_dora_.of(c.workspace));
    adapter->add_to_row(lane, c.parameters, tile, down, of_tile, added_.of(c.workspace), scales);
  }
}

}  // namespace strata::models
