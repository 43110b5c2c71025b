#include "models/layers/heads/head.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "device/ops/elementwise.h"
#include "device/ops/losses/cross_entropy.h"
#include "device/ops/products/matvec.h"
#include "device/ops/products/product.h"
#include "models/layers/heads/loss_rows.h"
#include "models/layers/heads/tile_products.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::LogitTile;
using device::Product;
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
        taken_(run, spec.hidden),
        rows_(taken_.count()),
        tiles_(spec.vocabulary, run.device.kind),
        chunk_rows_(chunk_rows(rows_, spec.vocabulary, run.device.kind)),
        generates_(run.cache > 0) {
    freeze(run.freeze, run.adapter);
    const auto d = static_cast<std::int64_t>(spec.hidden);
    const std::size_t gain = add_parameter(spec.gain_name, {d}, false, {1, 0});
    const bool has_bias = !spec.bias_name.empty();
    const std::size_t bias = has_bias ? add_parameter(spec.bias_name, {d}, false, {0, 0}) : 0;
    norm_.emplace(norm_kind(has_bias, spec.centred), norm_of_rows(generates_ ? 1 : rows_, spec.hidden, spec.eps), gain,
                  bias);
    if (biased())
      logit_bias_ = add_parameter(spec.logit_bias_name, {static_cast<std::int64_t>(spec.vocabulary)}, false, {0, 0});
    if (const auto& transform = spec.transform) {
      const std::string& name = transform->name;
      Linear::Tensor dense{spec.hidden, add_parameter(name + ".weight", {d, d}, true, {0, transform->deviation})};
      if (transform->bias) dense.bias = add_parameter(name + ".bias", {d}, false, {0, 0});
      dense.low_rank = add_low_rank(spec.hidden, std::array{LinearShape{name, spec.hidden}})[0];
      transform_.emplace(rows_, spec.hidden, dense, transform->bias, run);
      if (!transform->entry_gain.empty())
        entry_norm_.emplace(NormKind::layer_without_bias, norm_of_rows(rows_, spec.hidden, spec.eps),
                            add_parameter(transform->entry_gain, {d}, false, {1, 0}));
    }
    end_part();
    use(spec.tied);
    weight_ = tied() ? shared()->offset() : add_table(spec.weight_name, tiles_, spec.hidden, spec.init);

    if (generates_) {
      STRATA_CHECK(!biased() && !transform_ && !picks());
      Slots work;
      row_mean_ = work.add(1, DType::fp32);
      row_rstd_ = work.add(1, DType::fp32);
      row_no_bias_ = work.add(centred() ? spec.hidden : 0, run.dtype);
      row_normed_ = work.add(spec.hidden, run.dtype);
      whole_.bytes = work.bytes();
      return;
    }
    std::size_t scratch = std::max(norm_->scratch_bytes(), taken_.scratch_bytes());
    if (transform_) scratch = std::max(scratch, transform_->scratch_bytes(run.threads));
    for (const std::size_t rows : {chunk_rows_, rows_ % chunk_rows_})
      for (const std::size_t columns : {tiles_.rows(0), tiles_.rows(tiles_.count() - 1)}) {
        std::optional<TileProducts>& products = products_of(rows, columns);
        if (rows == 0 || products) continue;
        products.emplace(rows, columns, spec.hidden, biased(), run);
        scratch = std::max(scratch, products->workspace(run.threads));
        if (learns_words()) scratch = std::max(scratch, device::column_sum_workspace(rows, columns));
      }
    std::size_t stride = 0;
    for (std::size_t tile = 0; tile < tiles_.count(); ++tile) stride += logit_stride(tiles_.rows(tile));
    whole_ = Places(*this, scratch, stride, spec.vocabulary);
    tiled_ = Places(*this, scratch, logit_stride(tiles_.rows(0)), tiles_.rows(0));
  }

  std::size_t loss_workspace() const override { return whole_.bytes; }
  std::size_t tiled_loss_workspace() const override { return tiled_.bytes; }
  // In addition to the products, the loss passes over the fp32 logits.
  Work loss_work(bool learns) const override {
    const double rows = static_cast<double>(rows_), products = learns ? products_learning() : 1;
    return {.flops = products * (2 * rows * static_cast<double>(spec_.vocabulary * spec_.hidden)) +
                     transform_flops(true, learns),
            .bytes = 4 * static_cast<double>(rows_ * spec_.vocabulary) * products};
  }
  Work step_work(LossStep step, std::size_t elements) const override {
    if (step == LossStep::norm || step == LossStep::finish)
      return {.flops = transform_flops(step == LossStep::norm, step == LossStep::finish),
              .bytes = static_cast<double>(2 * rows_ * spec_.hidden * size_of(dtype_))};
    const double products = step == LossStep::gradients ? products_learning() : 1;
    return {.flops = products * (2 * static_cast<double>(rows_) * static_cast<double>(elements)),
            .bytes = 4 * static_cast<double>(rows_ * elements / spec_.hidden) * products};
  }
  std::size_t table_tiles() const override { return tiles_.count(); }
  void list_products(std::vector<ProductShape>& out) const override {
    if (transform_) transform_->list_products(out);
    for (std::size_t row = 0; !generates_ && row < rows_; row += chunk_rows_)
      for (std::size_t tile = 0; tile < tiles_.count(); ++tile) {
        const TileProducts& p = products(rows_from(row), tile);
        out.push_back(p.logits.shape());
        out.push_back(p.input.shape());
        if (learns_table()) out.push_back((row == 0 ? p.weights_first : p.weights_more).shape());
      }
  }

  void loss(Lane& lane, const Context& c, ConstView x, device::ExactSum* loss, View dx, View gradients) const override {
    const bool learn = static_cast<bool>(dx);
    const GradientRange table = tied() ? c.shared_gradients : GradientRange{gradients};
    const View d_weight = whole_.d_weight.of(c.workspace), logits = whole_.logits.of(c.workspace);
    normalize(lane, c, whole_, x);
    if (learn) zero(lane, d_normed(c, whole_));
    for (std::size_t row = 0; row < rows_; row += chunk_rows_) {
      std::size_t at = 0;
      const auto logits_of = [&](std::size_t tile) {
        const std::size_t size = rows_from(row) * logit_stride(tiles_.rows(tile));
        return logits.sub(std::exchange(at, at + size), size);
      };
      for (std::size_t tile = 0; tile < tiles_.count(); ++tile)
        add_statistics(lane, c, whole_, row, tile, logits_of(tile));
      at = 0;
      for (std::size_t tile = 0; learn && tile < tiles_.count(); ++tile)
        add_gradients(lane, c, whole_, row, tile, logits_of(tile), sum_of(tile, d_weight, table));
    }
    add_loss(lane, c, whole_, loss);
    if (!learn) return;
    for (std::size_t tile = 0; learns_table() && tile < tiles_.count(); ++tile)
      round_gradients(lane, tile, sum_of(tile, d_weight, table), table);
    finish(lane, c, whole_, x, dx, GradientRange{gradients});
  }

  void logits(Lane& lane, const Context& c, ConstView x, View logits) const override {
    STRATA_CHECK(generates_);
    const std::size_t d = spec_.hidden;
    const View normed = row_normed_.of(c.workspace);
    norm_->forward(lane, c.parameters, x.sub((c.cache.rows - 1) * d, d), normed, row_mean_.of(c.workspace),
                   row_rstd_.of(c.workspace), row_no_bias_.of(c.workspace));
    const std::size_t table = spec_.vocabulary * d;
    matvec(lane, {spec_.vocabulary, d}, (tied() ? c.shared : c.parameters).sub(weight_, table), normed, {}, logits);
  }

  void loss_step(Lane& lane, const Context& c, LossStep step, std::size_t tile, ConstView x, device::ExactSum* loss,
                 View dx, const GradientRange& gradients) const override {
    const View logits = tiled_.logits.of(c.workspace);
    switch (step) {
      case LossStep::norm:
        normalize(lane, c, tiled_, x);
        if (training_) zero(lane, d_normed(c, tiled_));
        return;
      case LossStep::statistics:
        for (std::size_t row = 0; row < rows_; row += chunk_rows_) add_statistics(lane, c, tiled_, row, tile, logits);
        return;
      case LossStep::gradients: {
        const View sum = !learns_table()         ? View{}
                         : dtype_ == DType::fp32 ? sum_of(tile, {}, gradients)
                                                 : tiled_.d_weight.of(c.workspace).sub(0, table_size(tile));
        for (std::size_t row = 0; row < rows_; row += chunk_rows_) {
          run_logits(lane, c, tiled_, row, tile, logits);
          add_gradients(lane, c, tiled_, row, tile, logits, sum);
        }
        if (learns_table()) round_gradients(lane, tile, sum, gradients);
        return;
      }
      case LossStep::finish:
        add_loss(lane, c, tiled_, loss);
        if (!dx) return;
        return finish(lane, c, tiled_, x, dx, gradients);
    }
  }

 private:
  // Places in the workspace. With `whole`, the logits of all tiles of a chunk and the gradient sums of all tiles fit.
  struct Places {
    Places() = default;
    Places(const ChunkedHead& head, std::size_t scratch_bytes, std::size_t logit_stride, std::size_t table_rows) {
      const std::size_t rows = head.rows_, d = head.spec_.hidden;
      const bool fp32 = head.dtype_ == DType::fp32, learns = head.training_;
      Slots work;
      scratch = work.add_bytes(scratch_bytes);
      mean = work.add(rows, DType::fp32);
      rstd = work.add(rows, DType::fp32);
      losses = work.add(rows, DType::fp32);
      statistics = work.add_bytes(rows * sizeof(RowStatistics));
      picked = work.add(head.picks() ? rows * d : 0, head.dtype_);
      inner = work.add(head.transform_ ? rows * d : 0, head.dtype_);
      active = work.add(head.transform_ ? rows * d : 0, head.dtype_);
      const std::size_t of_entry = head.entry_norm_ ? rows : 0;
      entered = work.add(of_entry * d, head.dtype_);
      entry_mean = work.add(of_entry, DType::fp32);
      entry_rstd = work.add(of_entry, DType::fp32);
      no_bias = work.add(head.centred() ? d : 0, head.dtype_);
      normed = work.add(rows * d, head.dtype_);
      d_normed = work.add(learns ? rows * d : 0, DType::fp32);
      d_normed_rounded = work.add(fp32 || !learns ? 0 : rows * d, head.dtype_);
      logits = work.add(head.chunk_rows_ * logit_stride, DType::fp32);
      // In fp32 the gradient buffer itself is the sum over chunks.
      d_weight = work.add(fp32 || !learns || !head.learns_table() ? 0 : table_rows * d, DType::fp32);
      const std::size_t words = head.biased() ? head.spec_.vocabulary : 0;
      const bool learns_words = learns && head.learns_words();
      logit_bias = work.add(words, head.dtype_);
      d_logit_bias = work.add(learns_words ? words : 0, DType::fp32);
      chunk_bias = work.add(learns_words ? head.tiles_.rows(0) : 0, DType::fp32);
      bytes = work.bytes();
    }
    // The rows that enter the loss; the output of the norm before the transform; the transform's inner and final
    // values.
    Slot picked, entered, inner, active;
    Slot entry_mean, entry_rstd;
    Slot no_bias;  // for norms without a bias
    Slot scratch, mean, rstd, losses, statistics, normed, d_normed, d_normed_rounded, logits, d_weight;
    // The logit biases, and the sum of their gradients: if the table is gathered by tiles, the unit's own parameters
    // are not available in between.
    Slot logit_bias, d_logit_bias, chunk_bias;
    std::size_t bytes = 0;
  };

  bool tied() const { return shared().has_value(); }
  bool centred() const { return spec_.centred; }
  bool picks() const { return taken_.picks(); }
  bool biased() const { return !spec_.logit_bias_name.empty(); }
  bool learns_table() const { return !is_frozen(weight_); }
  bool learns_words() const { return biased() && !is_frozen(logit_bias_); }
  // The logits, their gradient with respect to the input, and the one with respect to the table.
  double products_learning() const { return learns_table() ? 3 : 2; }
  std::size_t rows_from(std::size_t row) const { return std::min(chunk_rows_, rows_ - row); }
  std::size_t table_first(std::size_t tile) const { return tiles_.first(tile) * spec_.hidden; }
  std::size_t table_size(std::size_t tile) const { return tiles_.rows(tile) * spec_.hidden; }
  std::optional<TileProducts>& products_of(std::size_t rows, std::size_t columns) {
    return products_[rows == chunk_rows_ ? 0 : 1][columns == tiles_.rows(0) ? 0 : 1];
  }
  const TileProducts& products(std::size_t rows, std::size_t tile) const {
    return *products_[rows == chunk_rows_ ? 0 : 1][tiles_.rows(tile) == tiles_.rows(0) ? 0 : 1];
  }
  // The tile's part of a vector over the vocabulary.
  View tile_of(std::size_t tile, View words) const { return words.sub(tiles_.first(tile), tiles_.rows(tile)); }
  ConstView weight(const Context& c, std::size_t tile) const {
    return (tied() ? c.shared : c.parameters).sub(weight_ + table_first(tile), table_size(tile));
  }
  // The tile's place in the table's gradient, and (below) in its fp32 sum, which in fp32 is the same.
  View gradient_of(std::size_t tile, const GradientRange& gradients) const {
    return gradients.sub(weight_ + table_first(tile), table_size(tile));
  }
  View sum_of(std::size_t tile, View d_weight, const GradientRange& gradients) const {
    if (!learns_table()) return {};
    return dtype_ == DType::fp32 ? gradient_of(tile, gradients) : d_weight.sub(table_first(tile), table_size(tile));
  }
  static RowStatistics* statistics(const Context& c, const Places& p) {
    return reinterpret_cast<RowStatistics*>(p.statistics.of(c.workspace).data);
  }
  static View d_normed(const Context& c, const Places& p) { return p.d_normed.of(c.workspace); }
  LogitTile logit_tile(std::size_t row, std::size_t tile, View logits) const {
    return {rows_from(row), tiles_.first(tile), tiles_.rows(tile), logit_stride(tiles_.rows(tile)), logits};
  }

  double transform_flops(bool forward, bool backward) const {
    if (!transform_) return 0;
    return (forward ? transform_->forward_flops() : 0) + (backward ? transform_->backward_flops() : 0);
  }
  // The input of the transform, and of the norm after normalize(x).
  ConstView taken(const Context& c, const Places& p, ConstView x) const {
    return picks() ? ConstView(p.picked.of(c.workspace)) : x;
  }
  ConstView entered(const Context& c, const Places& p, ConstView x) const {
    return entry_norm_ ? ConstView(p.entered.of(c.workspace)) : taken(c, p, x);
  }
  ConstView unnormed(const Context& c, const Places& p, ConstView x) const {
    return transform_ ? ConstView(p.active.of(c.workspace)) : taken(c, p, x);
  }

  void normalize(Lane& lane, const Context& c, const Places& p, ConstView x) const {
    const View no_bias = p.no_bias.of(c.workspace);
    const ConstView taken = taken_.pick(lane, c, x, p.picked.of(c.workspace));
    if (entry_norm_)
      entry_norm_->forward(lane, c.parameters, taken, p.entered.of(c.workspace), p.entry_mean.of(c.workspace),
                           p.entry_rstd.of(c.workspace), no_bias);
    if (transform_)
      transform_->forward(lane, c.parameters, entered(c, p, x), p.inner.of(c.workspace), p.active.of(c.workspace),
                          p.scratch.of(c.workspace), adapter_dropout(c, 0));
    norm_->forward(lane, c.parameters, unnormed(c, p, x), p.normed.of(c.workspace), p.mean.of(c.workspace),
                   p.rstd.of(c.workspace), no_bias);
    if (biased()) cast(lane, c.parameters.sub(logit_bias_, spec_.vocabulary), p.logit_bias.of(c.workspace));
  }

  ConstView chunk(const Context& c, const Places& p, std::size_t row) const {
    return p.normed.of(c.workspace).sub(row * spec_.hidden, rows_from(row) * spec_.hidden);
  }
  void run_logits(Lane& lane, const Context& c, const Places& p, std::size_t row, std::size_t tile, View logits) const {
    const ConstView bias = biased() ? tile_of(tile, p.logit_bias.of(c.workspace)) : View{};
    products(rows_from(row), tile)
        .logits.run(lane, chunk(c, p, row), weight(c, tile), bias, logits, p.scratch.of(c.workspace));
  }
  void add_statistics(Lane& lane, const Context& c, const Places& p, std::size_t row, std::size_t tile,
                      View logits) const {
    run_logits(lane, c, p, row, tile, logits);
    softmax_statistics(lane, logit_tile(row, tile, logits), c.batch.labels + row, statistics(c, p) + row);
  }
  // Replaces the logits by their gradient, and adds their contributions to the input's gradient and to `sum`.
  void add_gradients(Lane& lane, const Context& c, const Places& p, std::size_t row, std::size_t tile, View logits,
                     View sum) const {
    const TileProducts& product = products(rows_from(row), tile);
    const View scratch = p.scratch.of(c.workspace);
    cross_entropy_gradient(lane, logit_tile(row, tile, logits), c.batch.labels + row, statistics(c, p) + row, c.scalars,
                           dtype_);
    const ConstView d_logits{logits.data, logits.bytes() / size_of(dtype_), dtype_};
    product.input.run(lane, d_logits, weight(c, tile), {},
                      d_normed(c, p).sub(row * spec_.hidden, rows_from(row) * spec_.hidden), scratch);
    if (learns_table())
      (row == 0 ? product.weights_first : product.weights_more).run(lane, d_logits, chunk(c, p, row), {}, sum, scratch);
    if (!learns_words()) return;
    const std::size_t columns = tiles_.rows(tile), stride = logit_stride(columns) * sizeof(float) / size_of(dtype_);
    const View d_bias = tile_of(tile, p.d_logit_bias.of(c.workspace));
    const View of_chunk = row == 0 ? d_bias : p.chunk_bias.of(c.workspace).sub(0, columns);
    column_sum(lane, rows_from(row), columns, stride, d_logits, of_chunk, scratch);
    if (row > 0) add(lane, of_chunk, d_bias);
  }
  void round_gradients(Lane& lane, std::size_t tile, View sum, const GradientRange& gradients) const {
    if (dtype_ != DType::fp32) cast(lane, sum, gradient_of(tile, gradients));
    if (!tied() || tile + 1 < tiles_.count()) return;
    // The shared range is rounded up to a whole block.
    const std::size_t table = weight_ + spec_.vocabulary * spec_.hidden;
    const std::size_t end = gradients.begin + gradients.values.size;
    if (end > table) zero(lane, gradients.sub(table, end - table));
  }
  void add_loss(Lane& lane, const Context& c, const Places& p, device::ExactSum* loss) const {
    const View losses = p.losses.of(c.workspace);
    cross_entropy_losses(lane, spec_.vocabulary, statistics(c, p), c.batch.labels, losses);
    sum_losses(lane, losses, loss);
  }
  void finish(Lane& lane, const Context& c, const Places& p, ConstView x, View dx,
              const GradientRange& gradients) const {
    const View scratch = p.scratch.of(c.workspace), no_bias = p.no_bias.of(c.workspace);
    View d_norm = d_normed(c, p);
    if (dtype_ != DType::fp32) {
      d_norm = p.d_normed_rounded.of(c.workspace);
      cast(lane, d_normed(c, p), d_norm);
    }
    // The norm's output, and from then on its input, are not read again.
    const View d_unnormed = transform_ || picks() ? p.normed.of(c.workspace) : dx;
    const View d_taken = !picks()      ? dx
                         : entry_norm_ ? p.entered.of(c.workspace)
                         : transform_  ? p.active.of(c.workspace)
                                       : d_unnormed;
    norm_->backward(lane, c.parameters, d_norm, unnormed(c, p, x), p.mean.of(c.workspace), p.rstd.of(c.workspace), {},
                    d_unnormed, gradients, scratch, no_bias);
    const View d_entered = entry_norm_ ? p.active.of(c.workspace) : d_taken;
    if (transform_)
      transform_->backward(lane, c.parameters, entered(c, p, x), p.inner.of(c.workspace), d_unnormed, d_entered,
                           gradients, scratch, adapter_dropout(c, 0));
    if (entry_norm_)
      entry_norm_->backward(lane, c.parameters, d_entered, taken(c, p, x), p.entry_mean.of(c.workspace),
                            p.entry_rstd.of(c.workspace), {}, d_taken, gradients, scratch, no_bias);
    if (picks()) taken_.put_back(lane, c, d_taken, dx, scratch);
    if (learns_words()) cast(lane, p.d_logit_bias.of(c.workspace), gradients.sub(logit_bias_, spec_.vocabulary));
  }

  HeadSpec spec_;
  DType dtype_;
  bool training_;
  LossRows taken_;
  std::size_t rows_;  // rows that enter the loss
  TableTiles tiles_;
  std::size_t chunk_rows_;
  bool generates_;
  std::optional<PredictionTransform> transform_;
  std::array<std::array<std::optional<TileProducts>, 2>, 2> products_;  // by rows: full, last; by columns: the same
  std::optional<NormPart> norm_, entry_norm_;
  std::size_t logit_bias_ = 0, weight_ = 0;  // weight_: also the offset in the holder's buffer
  Places whole_, tiled_;
  Slot row_mean_, row_rstd_, row_no_bias_, row_normed_;  // places in the workspace of a run that generates
};

}  // namespace

std::unique_ptr<LossUnit> make_head(const HeadSpec& spec, const RunShape& run) {
  return std::make_unique<ChunkedHead>(spec, run);
}

}  // namespace strata::models
