#include "models/layers/embedding.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "device/ops/elementwise.h"
#include "device/ops/embedding.h"
#include "models/layers/norm_part.h"
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
        shards_(run.shards),
        tiles_(spec.vocabulary, run.device.kind, run.shards) {
    freeze(run.freeze, run.adapter);
    const std::size_t hidden = spec.hidden;
    const auto table = [&](std::size_t rows) {
      return std::vector{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(hidden)};
    };
    if (split())
      add_cut_parameter(spec.table_name, table(spec.vocabulary), {0, 1, shards_.of}, true, spec.init,
                        /*fp32_moments=*/true);
    else
      add_table(spec.table_name, tiles_, hidden, spec.init, /*fp32_moments=*/true);
    std::size_t max_rows = tiles_.widths()[0];
    if (learned_positions()) {
      positions_offset_ = add_parameter(spec.position_name, table(spec.positions), true, spec.init,
                                        /*fp32_moments=*/true);
      if (spec.types > 0)
        types_offset_ = add_parameter(spec.type_name, table(spec.types), true, spec.init, /*fp32_moments=*/true);
      max_rows = std::max(max_rows, spec.positions);
    }
    if (split()) place_shards(shards_);
    end_part();
    for (std::size_t shard = 0; shard < shards_.count; ++shard)
      shard_offsets_.push_back(parameters()[0].offset_of(shard));
    std::size_t scratch = device::embedding_backward_workspace(tokens_, max_rows);
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

  // One rank has the word that is looked up. The others add -0, which leaves every number unchanged. +0 would change
  // -0.
  std::vector<Seam> seams(Pass pass, bool) const override {
    if (!shared_over_ranks() || pass == Pass::backward) return {};
    return {{.elements = tokens_ * spec_.hidden}};
  }

  void forward(Lane& lane, const Context& c, std::size_t part, ConstView, View y, View) const override {
    const std::size_t d = spec_.hidden, rows = c.one_row() ? 1 : tokens_;
    if (shared_over_ranks() && c.stretch == 0) {
      zero(lane, y);
      scale(lane, y, -1, y);
      look_up(lane, c, part, y);
      return cast(lane, y, c.partial.sub(0, y.size));
    }
    if (shared_over_ranks())
      cast(lane, c.total.sub(0, y.size), y);
    else
      look_up(lane, c, part, y);
    if (!is_last(part)) return;
    if (learned_positions()) embedding_add(lane, rows, d, c.batch.positions, looked_up(c.parameters), y);
    if (spec_.types > 0) embedding_add(lane, rows, d, types_of(c), c.parameters.sub(types_offset_, spec_.types * d), y);
    if (spec_.dropout > 0) dropout(lane, dropout_of(c), y, {}, y);
  }

  void backward(Lane& lane, const Context& c, std::size_t part, ConstView, ConstView, ConstView dy, View,
                const GradientRange& gradients) const override {
    const std::size_t d = spec_.hidden;
    const View scratch = scratch_.of(c.workspace);
    if (spec_.dropout > 0) {
      const View dropped = dropped_.of(c.workspace);
      if (is_last(part)) dropout(lane, dropout_of(c), dy, {}, dropped);
      dy = dropped;
    }
    for_tiles(part, [&](std::size_t tile) {
      if (const View d_table = gradients.sub(offset_of(tile), tiles_.rows(tile) * d))
        embedding_backward(lane, tokens_, d, c.batch.tokens, rows_of(tile), dy, d_table, scratch);
    });
    if (!is_last(part) || !learned_positions()) return;
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
  // The rows of the position table, starting with that of position 0.
  template <typename V>
  V looked_up(const FlatRange<V>& unit) const {
    const std::size_t first = spec_.first_position, d = spec_.hidden;
    return unit.sub(positions_offset_ + first * d, (spec_.positions - first) * d);
  }
  device::TableRows rows_of(std::size_t tile) const {
    return {tiles_.first(tile), tiles_.rows(tile), spec_.vocabulary};
  }
  std::size_t offset_of(std::size_t tile) const {
    return shard_offsets_[tiles_.shard(tile)] + tiles_.row_in_shard(tile) * spec_.hidden;
  }
  // With one shard, each tile of the table is a part. The positions are a separate part, the last one.
  template <typename F>
  void for_tiles(std::size_t part, F&& f) const {
    for (std::size_t tile = 0; tile < tiles_.count(); ++tile)
      if (split() || tile == part) f(tile);
  }
  void look_up(Lane& lane, const Context& c, std::size_t part, View y) const {
    const std::size_t d = spec_.hidden, rows = c.one_row() ? 1 : tokens_;
    for_tiles(part, [&](std::size_t tile) {
      embedding_forward(lane, rows, d, c.batch.tokens, rows_of(tile),
                        c.parameters.sub(offset_of(tile), tiles_.rows(tile) * d), y);
    });
  }
  bool is_last(std::size_t part) const { return part + 1 == parts().size(); }
  bool learned_positions() const { return !spec_.position_name.empty(); }
  bool split() const { return shards_.of > 1; }
  bool shared_over_ranks() const { return shards_.count < shards_.of; }

  EmbeddingSpec spec_;
  std::size_t tokens_, element_, positions_offset_ = 0, types_offset_ = 0;
  ShardRange shards_;
  TableTiles tiles_;
  std::vector<std::size_t> shard_offsets_;  // offsets of this rank's shards of the table
  Slot scratch_, dropped_;
  UnitBytes bytes_;
};

}  // namespace

std::unique_ptr<Unit> make_embedding(const EmbeddingSpec& spec, const RunShape& run) {
  return std::make_unique<Embedding>(spec, run);
}

namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

class EmbeddingNorm final : public Unit {
 public:
  EmbeddingNorm(const EmbeddingNormSpec& spec, const RunShape& run)
      : Unit("embedding norm", {.own_rows = true}),
        spec_(spec),
        rows_(run.own_rows()),
        activation_(rows_.size() * spec.hidden * size_of(run.dtype)) {
    freeze(run.freeze, run.adapter);
    const auto d = static_cast<std::int64_t>(spec.hidden);
    const std::size_t gain = add_parameter(spec.name + ".weight", {d}, false, {1, 0});
    const std::size_t bias = spec.bias ? add_parameter(spec.name + ".bias", {d}, false, {0, 0}) : 0;
    end_part();
    norm_.emplace(spec.bias ? NormKind::layer : NormKind::layer_without_bias,
                  norm_of_rows(rows_.size(), spec.hidden, spec.eps), gain, bias, run.row_blocks());
    Slots save, work;
    mean_ = save.add(rows_.size(), DType::fp32);
    rstd_ = save.add(rows_.size(), DType::fp32);
    bytes_.saved = save.bytes();
    scratch_ = work.add_bytes(norm_->scratch_bytes());
    d_normed_ = work.add(rows_.size() * spec.hidden, run.dtype);
    no_bias_ = work.add(spec.bias ? 0 : spec.hidden, run.dtype);
    sums_ = work.add(norm_->sums(), DType::fp32);
    bytes_.forward_workspace = bytes_.backward_workspace = work.bytes();
  }

  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  Work work(Pass pass, const PartRange& parts) const override {
    const double passes = (pass == Pass::forward ? 2 : 3) + (spec_.dropout > 0 ? 2 : 0);
    return {.bytes = share_of(passes * static_cast<double>(activation_), parts)};
  }

  // If each rank has some of the rows, the gradients of gain and bias cross between ranks.
  std::vector<Seam> seams(Pass pass, bool) const override {
    if (pass == Pass::forward || norm_->crossing() == 0) return {};
    return {{.elements = norm_->crossing()}};
  }

  void forward(Lane& lane, const Context& c, std::size_t, ConstView x, View y, View saved) const override {
    // Without y, the norm still writes its statistics.
    norm_->forward(lane, c.parameters, x, y ? y : d_normed_.of(c.workspace), mean_.of(saved), rstd_.of(saved),
                   no_bias_.of(c.workspace));
    if (y && spec_.dropout > 0) dropout(lane, dropout_of(c), y, {}, y);
  }

  void backward(Lane& lane, const Context& c, std::size_t, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    if (c.stretch == 1) return norm_->take_gradients(lane, c.total, gradients);
    const View d_normed = d_normed_.of(c.workspace);
    dropout(lane, dropout_of(c), dy, {}, d_normed);  // copies if nothing is dropped, because dx may be dy
    norm_->backward(lane, c.parameters, d_normed, x, mean_.of(saved), rstd_.of(saved), {}, dx, gradients,
                    scratch_.of(c.workspace), no_bias_.of(c.workspace), sums_.of(c.workspace));
    if (c.partial) norm_->write_partial_gradients(lane, sums_.of(c.workspace), c.partial);
  }

 private:
  // Uses the site of the embedding's dropout, because a model with this unit has no other dropout there.
  device::Dropout dropout_of(const Context& c) const {
    return {spec_.dropout, 0, c.micro_batch, c.scalars, rows_.begin * spec_.hidden};
  }

  EmbeddingNormSpec spec_;
  ElementRange rows_;
  std::size_t activation_;
  std::optional<NormPart> norm_;
  Slot mean_, rstd_;                          // saved
  Slot scratch_, d_normed_, no_bias_, sums_;  // workspace
  UnitBytes bytes_;
};

}  // namespace

std::unique_ptr<Unit> make_embedding_norm(const EmbeddingNormSpec& spec, const RunShape& run) {
  return std::make_unique<EmbeddingNorm>(spec, run);
}

bool is_embedding_norm(const Unit& unit) {
  return dynamic_cast<const EmbeddingNorm*>(&unit) != nullptr;
}

}  // namespace strata::models
