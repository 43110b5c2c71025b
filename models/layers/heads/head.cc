#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "device/ops/elementwise.h"
#include "device/ops/losses/losses.h"
#include "device/ops/products/product.h"
#include "models/layers/heads/head_adapter.h"
#include "models/layers/heads/head_costs.h"
#include "models/layers/heads/head_parts.h"
#include "models/layers/heads/heads.h"
#include "models/layers/heads/row_logits.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::ProductShape;
using device::RowStatistics;
using device::View;

class ChunkedHead final : public LossUnit {
 public:
  ChunkedHead(const HeadSpec& spec, const RunShape& run)
      : LossUnit("head"),
        spec_(spec),
        dtype_(run.dtype),
        training_(run.training),
        shards_(run.shards),
        input_(run, spec.hidden),
        rows_(input_.rows()),
        table_(spec.vocabulary, spec.hidden, run),
        generates_(run.cache > 0) {
    freeze(run.freeze, run.adapter);
    const auto d = static_cast<std::int64_t>(spec.hidden);
    const std::size_t gain = add_parameter(spec.gain_name, {d}, false, {1, 0});
    const bool has_bias = !spec.bias_name.empty();
    const std::size_t bias = has_bias ? add_parameter(spec.bias_name, {d}, false, {0, 0}) : 0;
    input_.set_norm(
        {norm_kind(has_bias, spec.centred), norm_of_rows(generates_ ? 1 : rows_, spec.hidden, spec.eps), gain, bias});
    const auto words = static_cast<std::int64_t>(spec.vocabulary);
    std::size_t bias_index = parameters().size(), table_index = 0;
    if (biased() && split())
      add_cut_parameter(spec.logit_bias_name, {words}, {0, 1, shards_.of}, false, {0, 0});
    else if (biased())
      add_parameter(spec.logit_bias_name, {words}, false, {0, 0});
    if (const auto& transform = spec.transform) {
      const std::string& name = transform->name;
      Linear::Tensor dense{spec.hidden, add_parameter(name + ".weight", {d, d}, true, {0, transform->deviation})};
      if (transform->bias) dense.bias = add_parameter(name + ".bias", {d}, false, {0, 0});
      dense.low_rank = add_low_rank(spec.hidden, std::array{LinearShape{name, spec.hidden}})[0];
      input_.set_transform(dense, transform->bias, run);
      if (!transform->entry_gain.empty())
        input_.set_entry_norm({NormKind::layer_without_bias, norm_of_rows(rows_, spec.hidden, spec.eps),
                               add_parameter(transform->entry_gain, {d}, false, {1, 0})});
    }
    use(spec.tied);
    if (tied() && !split()) end_part();
    LowRank low_rank;
    if (!tied()) {
      const std::string layer = spec.weight_name.substr(0, spec.weight_name.rfind('.'));
      const LinearShape shape{.name = layer, .out = spec.vocabulary, .output = true};
      low_rank = add_low_rank(spec.hidden, {&shape, 1}, shards_.of)[0];
    }
    table_index = parameters().size();
    if (!tied() && split())
      add_cut_parameter(spec.weight_name, {words, d}, {0, 1, shards_.of}, true, spec.init);
    else if (!tied())
      add_table(spec.weight_name, table_.tiles(), spec.hidden, spec.init, false, low_rank);
    if (split()) {
      place_shards(shards_);
      end_part();
    }
    std::vector<std::size_t> rows, biases;
    for (std::size_t shard = 0; shard < shards_.count; ++shard) {
      if (biased()) biases.push_back(parameters()[bias_index].offset_of(shard));
      rows.push_back(tied() ? shared()->offset_of(shard) : parameters()[table_index].offset_of(shard));
    }
    table_.place(std::move(rows), std::move(biases));
    const bool drops = run.adapter_dropout() > 0;
    if (low_rank.rank > 0)
      adapter_.emplace(linear_layers().back(), parameters(), table_, shards_, rows_, spec.hidden, drops);
    chunk_rows_ = chunk_rows(rows_, spec.vocabulary, run.device.kind);
    // Random numbers are drawn in groups of four, so a chunk must begin with a group.
    if (low_rank.dora && drops) chunk_rows_ = std::min(rows_, (chunk_rows_ + 3) / 4 * 4);

    if (generates_) {
      STRATA_CHECK(!biased() && !input_.transforms() && !input_.selects());
      row_.emplace(table_, shards_.count, spec.hidden, centred(), adapter_ ? &*adapter_ : nullptr, run.dtype);
      untiled_.bytes = row_->bytes();
      return;
    }
    table_.prepare(rows_, chunk_rows_, low_rank, run);
    if (adapter_) adapter_->prepare(run);
    std::size_t scratch = std::max(input_.scratch_bytes(run.threads), table_.workspace(run.threads));
    if (adapter_) scratch = std::max(scratch, adapter_->workspace(run.threads));
    if (table_.learns_words()) scratch = std::max(scratch, table_.column_workspace());
    const TableTiles& tiles = table_.tiles();
    HeadWorkspace::Shape shape{.rows = rows_,
                               .chunk_rows = chunk_rows_,
                               .hidden = spec.hidden,
                               .dtype = dtype_,
                               .scratch_bytes = scratch,
                               .logit_stride = tiles.sum_over_full_shards(logit_stride),
                               .table_rows = shards_.count * tiles.shard_words(),
                               .words = shards_.count * table_.padded_words(),
                               .max_words = tiles.widths()[0],
                               .biased = biased(),
                               .learns = training_,
                               .learns_table = table_.learns_rows(),
                               .learns_words = table_.learns_words(),
                               .selects = input_.selects(),
                               .transforms = input_.transforms(),
                               .has_entry_norm = input_.has_entry_norm(),
                               .centred = centred(),
                               .shards = split() ? shards_.count : 0,
                               .shared = shared_over_ranks(),
                               .rank = low_rank.rank,
                               .drops = adapter_ && drops,
                               .dora = low_rank.dora};
    const auto scaled_stride = [&] { return drops ? shape.logit_stride : logit_stride(shape.max_words); };
    if (shape.dora) shape.scaled_stride = scaled_stride();
    untiled_ = HeadWorkspace(shape);
    if (split()) return;
    shape.one_tile = true;
    shape.logit_stride = logit_stride(tiles.rows(0));
    if (shape.dora) shape.scaled_stride = scaled_stride();
    shape.table_rows = tiles.rows(0);
    tiled_ = HeadWorkspace(shape);
  }

  std::size_t cache_bytes() const override { return row_ ? row_->cache_bytes() : 0; }
  std::size_t loss_workspace() const override { return untiled_.bytes; }
  std::size_t tiled_loss_workspace() const override { return tiled_.bytes; }
  // Costs assume full shards, so that all ranks make the same decisions from them.
  Work loss_work(bool learns) const override {
    return costs().loss_work(shards_.count * table_.tiles().shard_words(), learns);
  }
  Work full_work(Pass pass) const override {
    const double forward = costs().loss_work(spec_.vocabulary, false).flops;
    return {pass == Pass::forward ? forward : costs().loss_work(spec_.vocabulary, true).flops - forward};
  }
  Work step_work(LossStep step, std::size_t elements) const override { return costs().step_work(step, elements); }
  std::size_t table_tiles() const override { return split() ? 0 : table_.count(); }
  void list_products(std::vector<ProductShape>& out) const override {
    input_.list_products(out);
    if (adapter_ && !generates_) adapter_->list_products(out);
    for (std::size_t row = 0; !generates_ && row < rows_; row += chunk_rows_)
      table_.for_listed(rows_from(row),
                        [&](const TileProducts& products) { products.list(out, row == 0, table_.learns_rows()); });
  }

  // Ranks exchange the statistics of each chunk's rows, and then add the gradient of the norm's output.
  std::vector<Seam> seams(Pass pass, bool) const override {
    if (!shared_over_ranks()) return {};
    if (generates_) return {{.elements = shards_.count * table_.tiles().shard_words(), .gathers = true}};
    std::vector<Seam> all;
    for (std::size_t row = 0; row < rows_; row += chunk_rows_)
      all.push_back(
          {.elements = shards_.count * rows_from(row) * sizeof(RowStatistics) / sizeof(float), .gathers = true});
    if (pass == Pass::backward)
      all.push_back({.elements = rows_ * spec_.hidden + (adapter_ ? adapter_->crossing() : 0)});
    return all;
  }

  // If ranks share the vocabulary, stretch i first uses the statistics of chunk i - 1, then computes those of chunk i.
  void loss(Lane& lane, const Context& c, ConstView x, device::ExactSum* loss, View dx, View gradients) const override {
    const bool learn = static_cast<bool>(dx), all = !shared_over_ranks();
    const GradientRange table = tied() ? c.shared_gradients : GradientRange{gradients};
    const std::size_t chunks = (rows_ + chunk_rows_ - 1) / chunk_rows_;
    if (all || c.stretch == 0) normalize(lane, c, untiled_, x);
    if ((all || c.stretch == 0) && learn && !split()) zero(lane, d_normed(c, untiled_));
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      const std::size_t row = chunk * chunk_rows_;
      if (!all && c.stretch == chunk + 1) {
        combine(lane, c, row, c.total.data);
        if (learn) add_gradients_of_chunk(lane, c, row, table);
      }
      if (!all && c.stretch != chunk) continue;
      add_statistics_of_chunk(lane, c, row, all ? untiled_.shard_statistics.of(c.workspace).data : c.partial.data);
      if (!all) return;
      if (split()) combine(lane, c, row, untiled_.shard_statistics.of(c.workspace).data);
      if (learn) add_gradients_of_chunk(lane, c, row, table);
    }
    if (!all && c.stretch < chunks) return;
    if (all || c.stretch == chunks) {
      add_loss(lane, c, untiled_, loss);
      if (!learn) return;
      for (std::size_t tile = 0; tile < table_.count(); ++tile) round_gradients(lane, c, untiled_, tile, table);
      if (tied() && table_.learns_rows()) table_.zero_gaps(lane, table);
      if (!all) return write_partial_gradients(lane, c);
    }
    finish(lane, c, untiled_, x, dx, GradientRange{gradients});
  }

  void logits(Lane& lane, const Context& c, ConstView x, View logits) const override {
    STRATA_CHECK(generates_);
    if (shared_over_ranks() && c.stretch == 1)
      return cast(lane, ConstView{c.total.data, logits.size, DType::fp32}, logits);
    const View own = shared_over_ranks() ? c.partial : logits;
    const ConstView last = x.sub((c.cache.rows - 1) * spec_.hidden, spec_.hidden);
    row_->run(lane, c, input_.norm(), table_, holder(c), adapter_ ? &*adapter_ : nullptr, last, own);
  }

  void loss_step(Lane& lane, const Context& c, LossStep step, std::size_t tile, ConstView x, device::ExactSum* loss,
                 View dx, const GradientRange& gradients) const override {
    const TileLogits logits = tiled_.first_logits(c.workspace);
    switch (step) {
      case LossStep::norm:
        normalize(lane, c, tiled_, x);
        if (training_) zero(lane, d_normed(c, tiled_));
        return;
      case LossStep::statistics:
        for (std::size_t row = 0; row < rows_; row += chunk_rows_)
          add_statistics(lane, c, tiled_, row, tile, logits, statistics(c, tiled_) + row);
        return;
      case LossStep::gradients:
        for (std::size_t row = 0; row < rows_; row += chunk_rows_) {
          run_logits(lane, c, tiled_, row, tile, logits);
          add_gradients(lane, c, tiled_, row, tile, logits, d_normed_of(c, tiled_, row), gradients);
        }
        round_gradients(lane, c, tiled_, tile, gradients);
        if (tied() && table_.learns_rows()) table_.zero_gaps(lane, gradients);
        return;
      case LossStep::finish:
        add_loss(lane, c, tiled_, loss);
        if (dx) finish(lane, c, tiled_, x, dx, gradients);
    }
  }

 private:
  bool tied() const { return shared().has_value(); }
  bool centred() const { return spec_.centred; }
  bool biased() const { return !spec_.logit_bias_name.empty(); }
  bool split() const { return shards_.of > 1; }
  bool shared_over_ranks() const { return shards_.count < shards_.of; }
  std::size_t rows_from(std::size_t row) const { return std::min(chunk_rows_, rows_ - row); }
  const TileProducts& products(std::size_t row, std::size_t tile) const {
    return table_.products(rows_from(row), tile);
  }
  const ParameterRange& holder(const Context& c) const { return tied() ? c.shared : c.parameters; }
  ConstView weight(const Context& c, std::size_t tile) const { return table_.rows_in(holder(c), tile); }
  // The tile's place in the fp32 sum of the table's gradient, which in fp32 is the gradient.
  View sum_of(const Context& c, const HeadWorkspace& p, std::size_t tile, const GradientRange& gradients) const {
    if (dtype_ == DType::fp32) return table_.rows_in(gradients, tile);
    return table_.rows_of_sum(p.d_weight.of(c.workspace), tile, spec_.hidden, p.one_tile);
  }
  static RowStatistics* statistics(const Context& c, const HeadWorkspace& p) {
    return reinterpret_cast<RowStatistics*>(p.statistics.of(c.workspace).data);
  }
  static View d_normed(const Context& c, const HeadWorkspace& p) { return p.d_normed.of(c.workspace); }
  View d_normed_of(const Context& c, const HeadWorkspace& p, std::size_t row) const {
    return d_normed(c, p).sub(row * spec_.hidden, rows_from(row) * spec_.hidden);
  }
  HeadCosts costs() const {
    return {input_, adapter_ ? &*adapter_ : nullptr, rows_, spec_.hidden, dtype_, table_.learns_rows()};
  }
  HeadTile at(std::size_t row, std::size_t tile) const { return {row, rows_from(row), tile}; }
  // The projection is the last of the head's linear layers.
  device::Dropout dropout_of_adapter(const Context& c) const { return adapter_dropout(c, linear_layers().size() - 1); }
  void normalize(Lane& lane, const Context& c, const HeadWorkspace& p, ConstView x) const {
    input_.forward(lane, c, p, x, adapter_dropout(c, 0));
    if (adapter_) adapter_->project(lane, c, p, dropout_of_adapter(c));
    for (std::size_t tile = 0; biased() && tile < table_.count(); ++tile)
      cast(lane, table_.bias_in(c.parameters, tile), table_.words_in(p.logit_bias.of(c.workspace), tile));
  }

  ConstView chunk(const Context& c, const HeadWorkspace& p, std::size_t row) const {
    return p.normed.of(c.workspace).sub(row * spec_.hidden, rows_from(row) * spec_.hidden);
  }
  void run_logits(Lane& lane, const Context& c, const HeadWorkspace& p, std::size_t row, std::size_t tile,
                  const TileLogits& to) const {
    if (adapter_) return adapter_->logits(lane, c, p, at(row, tile), weight(c, tile), to);
    const ConstView bias = biased() ? table_.words_in(p.logit_bias.of(c.workspace), tile) : View{};
    products(row, tile).logits.run(lane, chunk(c, p, row), weight(c, tile), bias, to.logits, p.scratch.of(c.workspace));
  }
  void add_statistics(Lane& lane, const Context& c, const HeadWorkspace& p, std::size_t row, std::size_t tile,
                      const TileLogits& logits, RowStatistics* to) const {
    if (adapter_ && row == 0) adapter_->measure(lane, c, p, tile, weight(c, tile));
    run_logits(lane, c, p, row, tile, logits);
    softmax_statistics(lane, table_.logit_tile(rows_from(row), tile, logits.logits), c.batch.labels + row, to);
  }
  // With several shards, the statistics of each go to `shard_statistics`, [shards, rows of the chunk].
  void add_statistics_of_chunk(Lane& lane, const Context& c, std::size_t row, std::byte* shard_statistics) const {
    RowStatistics* to = split() ? reinterpret_cast<RowStatistics*>(shard_statistics) : statistics(c, untiled_) + row;
    table_.for_logits(c, untiled_, rows_from(row), [&](std::size_t tile, const TileLogits& logits) {
      add_statistics(lane, c, untiled_, row, tile, logits, to + table_.shard(tile) * rows_from(row));
    });
  }
  void combine(Lane& lane, const Context& c, std::size_t row, const std::byte* shard_statistics) const {
    combine_statistics(lane, {spec_.vocabulary, shards_.of, table_.tiles().shard_words()}, rows_from(row),
                       reinterpret_cast<const RowStatistics*>(shard_statistics), c.batch.labels + row,
                       statistics(c, untiled_) + row);
  }
  // With several shards, the input's gradients of each are added by a tree.
  void add_gradients_of_chunk(Lane& lane, const Context& c, std::size_t row, const GradientRange& table) const {
    const std::size_t size = rows_from(row) * spec_.hidden;
    const View stack = split() ? untiled_.shard_d_normed.of(c.workspace).sub(0, shards_.count * size) : View{};
    if (split()) zero(lane, stack);
    table_.for_logits(c, untiled_, rows_from(row), [&](std::size_t tile, const TileLogits& logits) {
      if (adapter_) adapter_->scale_again(lane, c, untiled_, at(row, tile), logits);
      const View to = split() ? stack.sub(table_.shard(tile) * size, size) : d_normed_of(c, untiled_, row);
      add_gradients(lane, c, untiled_, row, tile, logits, to, table);
    });
    if (!split()) return;
    const Slot& sum = untiled_.d_normed.size > 0 ? untiled_.d_normed : untiled_.d_normed_rounded;
    tree_sum(lane, shards_.count, stack, {}, sum.of(c.workspace).sub(row * spec_.hidden, size));
  }
  // Replaces the logits by their gradient, and adds their contributions to the gradients of the input and the table.
  void add_gradients(Lane& lane, const Context& c, const HeadWorkspace& p, std::size_t row, std::size_t tile,
                     const TileLogits& logits, View d_input, const GradientRange& gradients) const {
    const TileProducts& product = products(row, tile);
    const View scratch = p.scratch.of(c.workspace), own = logits.logits;
    cross_entropy_gradient(lane, table_.logit_tile(rows_from(row), tile, own), c.batch.labels + row,
                           statistics(c, p) + row, c.scalars, dtype_);
    const View d_logits{own.data, own.bytes() / size_of(dtype_), dtype_};
    if (table_.learns_words()) table_.add_to_bias(lane, c, p, at(row, tile), d_logits);
    if (adapter_)
      adapter_->add_gradients(lane, c, p, at(row, tile), weight(c, tile), d_logits, logits.unscaled, d_input, gradients,
                              dropout_of_adapter(c));
    else
      product.input.run(lane, d_logits, weight(c, tile), {}, d_input, scratch);
    if (table_.learns_rows())
      (row == 0 ? product.weights_first : product.weights_more)
          .run(lane, d_logits, chunk(c, p, row), {}, sum_of(c, p, tile, gradients), scratch);
  }
  void round_gradients(Lane& lane, const Context& c, const HeadWorkspace& p, std::size_t tile,
                       const GradientRange& gradients) const {
    if (adapter_) adapter_->round_gradient(lane, c, p, tile, gradients);
    if (table_.learns_rows() && dtype_ != DType::fp32)
      cast(lane, sum_of(c, p, tile, gradients), table_.rows_in(gradients, tile));
  }
  // For the sum over the ranks that share the head.
  void write_partial_gradients(Lane& lane, const Context& c) const {
    const std::size_t size = rows_ * spec_.hidden;
    cast(lane, d_normed(c, untiled_), c.partial.sub(0, size));
    if (adapter_) adapter_->write_partial_gradient(lane, c, untiled_, c.partial.sub(size, adapter_->crossing()));
  }
  void add_loss(Lane& lane, const Context& c, const HeadWorkspace& p, device::ExactSum* loss) const {
    const View losses = p.losses.of(c.workspace);
    cross_entropy_losses(lane, spec_.vocabulary, statistics(c, p), c.batch.labels, losses);
    sum_losses(lane, losses, loss);
  }
  void finish(Lane& lane, const Context& c, const HeadWorkspace& p, ConstView x, View dx,
              const GradientRange& gradients) const {
    View d_norm = d_normed(c, p);
    if (!shared_over_ranks() && dtype_ != DType::fp32) {
      const View rounded = p.d_normed_rounded.of(c.workspace);
      if (!split()) cast(lane, d_norm, rounded);
      d_norm = rounded;
    }
    const std::size_t size = rows_ * spec_.hidden;
    const ConstView total = shared_over_ranks() ? c.total : ConstView{};
    if (adapter_) {
      d_norm = {d_norm.data, size, dtype_};
      adapter_->backward(lane, c, p, total, d_norm, gradients, dropout_of_adapter(c));
    }
    const ConstView d = total && !adapter_ ? total.sub(0, size) : d_norm;
    input_.backward(lane, c, p, x, d, dx, gradients, adapter_dropout(c, 0));
    for (std::size_t tile = 0; table_.learns_words() && tile < table_.count(); ++tile)
      cast(lane, table_.words_in(p.d_logit_bias.of(c.workspace), tile), table_.bias_in(gradients, tile));
  }

  HeadSpec spec_;
  DType dtype_;
  bool training_;
  ShardRange shards_;
  HeadInput input_;
  std::size_t rows_;  // rows that enter the loss
  HeadTable table_;
  std::size_t chunk_rows_;
  std::optional<HeadAdapter> adapter_;
  bool generates_;
  std::optional<RowLogits> row_;  // if it generates
  // With untiled_, the logits of all tiles of a chunk and the gradient sums of all tiles exist at once.
  HeadWorkspace untiled_, tiled_;
};

}  // namespace

std::unique_ptr<LossUnit> make_head(const HeadSpec& spec, const RunShape& run) {
  return std::make_unique<ChunkedHead>(spec, run);
}

}  // namespace strata::models
