#include "models/layers/embedding.h"

#include <algorithm>

#include "device/ops/dropout.h"
#include "device/ops/elementwise.h"
#include "device/ops/embedding.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::Lane;
using device::View;

class Embedding final : public Unit {
 public:
  Embedding(const EmbeddingSpec& spec, const RunShape& run)
      : Unit("embedding", {.input = false, .output_by_parts = true, .parameters_in_backward = false}),
        spec_(spec),
        tokens_(run.tokens()),
        element_(size_of(run.dtype)),
        tiles_(spec.vocabulary, run.device.kind) {
    freeze(run.freeze, run.adapter);
    table_ = add_table(spec.table_name, tiles_, spec.hidden, spec.init, /*fp32_moments=*/true);
    std::size_t most_rows = tiles_.rows(0);
    if (!spec.position_name.empty()) {
      positions_offset_ = add_parameter(
          spec.position_name, {static_cast<std::int64_t>(spec.positions), static_cast<std::int64_t>(spec.hidden)}, true,
          spec.init, /*fp32_moments=*/true);
      if (spec.types > 0)
        types_offset_ = add_parameter(spec.type_name,
                                      {static_cast<std::int64_t>(spec.types), static_cast<std::int64_t>(spec.hidden)},
                                      true, spec.init, /*fp32_moments=*/true);
      end_part();
      most_rows = std::max(most_rows, spec.positions);
    }
    std::size_t scratch = device::embedding_backward_workspace(tokens_, most_rows);
    if (spec.types > 0) scratch = std::max(scratch, device::column_sum_workspace(tokens_, spec.hidden));
    Slots work;
    scratch_ = work.add_bytes(scratch);
    dropped_ = work.add(spec.dropout > 0 ? tokens_ * spec.hidden : 0, run.dtype);
    bytes_.backward_workspace = work.bytes();
  }

  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  // Forward looks up rows; backward writes the complete gradients of its tables.
  Work work(Pass pass, const PartRange& parts) const override {
    if (pass == Pass::forward)
      return {.bytes = share_of(static_cast<double>(2 * tokens_ * spec_.hidden * element_), parts)};
    std::size_t trained = 0;
    for (std::size_t part = parts.first; part < parts.last; ++part) trained += this->parts()[part].size();
    return {.bytes = static_cast<double>(trained * element_)};
  }

  void forward(Lane& lane, const Context& c, std::size_t part, ConstView, View y, View) const override {
    const std::size_t d = spec_.hidden, rows = c.one_row() ? 1 : tokens_;
    if (part < tiles_.count()) {
      const device::TableRows tile = rows_of(part);
      embedding_forward(lane, rows, d, c.batch.tokens, tile, c.parameters.sub(table_ + tile.first * d, tile.count * d),
                        y);
    } else {
      embedding_add(lane, rows, d, c.batch.positions, looked_up(c.parameters), y);
      if (spec_.types > 0)
        embedding_add(lane, rows, d, types_of(c), c.parameters.sub(types_offset_, spec_.types * d), y);
    }
    if (part + 1 == parts().size() && spec_.dropout > 0) dropout(lane, dropout_of(c), y, {}, y);
  }

  void backward(Lane& lane, const Context& c, std::size_t part, ConstView, ConstView, ConstView dy, View,
                const GradientRange& gradients) const override {
    const std::size_t d = spec_.hidden;
    const View scratch = scratch_.of(c.workspace);
    if (spec_.dropout > 0) {
      const View dropped = dropped_.of(c.workspace);
      if (part + 1 == parts().size()) dropout(lane, dropout_of(c), dy, {}, dropped);
      dy = dropped;
    }
    if (part < tiles_.count()) {
      const device::TableRows tile = rows_of(part);
      if (const View d_table = gradients.sub(table_ + tile.first * d, tile.count * d))
        embedding_backward(lane, tokens_, d, c.batch.tokens, tile, dy, d_table, scratch);
      return;
    }
    if (const View d_positions = looked_up(gradients)) {
      const std::size_t count = spec_.positions - spec_.first_position;
      embedding_backward(lane, tokens_, d, c.batch.positions, {0, count, count}, dy, d_positions, scratch);
      const std::size_t still = spec_.first_position + (spec_.padded ? 1 : 0);
      if (still > 0) zero(lane, gradients.sub(positions_offset_, still * d));
    }
    const View d_types = spec_.types > 0 ? gradients.sub(types_offset_, spec_.types * d) : View{};
    if (!d_types) return;
    if (spec_.types == 1)
      column_sum(lane, tokens_, d, d, dy, d_types, scratch);
    else
      embedding_backward(lane, tokens_, d, c.batch.types, {0, spec_.types, spec_.types}, dy, d_types, scratch);
  }

 private:
  const std::uint32_t* types_of(const Context& c) const {
    return spec_.types > 1 ? c.batch.types : reinterpret_cast<const std::uint32_t*>(c.constants);
  }
  device::Dropout dropout_of(const Context& c) const { return {spec_.dropout, 0, c.micro_batch, c.scalars}; }
  // The rows of the position table, beginning with position 0's.
  template <typename V>
  V looked_up(const FlatRange<V>& unit) const {
    const std::size_t first = spec_.first_position, d = spec_.hidden;
    return unit.sub(positions_offset_ + first * d, (spec_.positions - first) * d);
  }
  device::TableRows rows_of(std::size_t tile) const {
    return {tiles_.first(tile), tiles_.rows(tile), spec_.vocabulary};
  }

  EmbeddingSpec spec_;
  std::size_t tokens_, element_, table_ = 0, positions_offset_ = 0, types_offset_ = 0;
  TableTiles tiles_;
  Slot scratch_, dropped_;
  UnitBytes bytes_;
};

}  // namespace

std::unique_ptr<Unit> make_embedding(const EmbeddingSpec& spec, const RunShape& run) {
  return std::make_unique<Embedding>(spec, run);
}

}  // namespace strata::models
