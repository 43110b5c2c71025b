#include "models/layers/heads/head_parts.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "device/ops/activation.h"
#include "device/ops/elementwise.h"
#include "device/ops/embedding.h"
#include "device/ops/losses/losses.h"

namespace strata::models {

using device::ConstView;
using device::Lane;
using device::View;

void HeadInput::set_transform(const Linear::Tensor& tensor, bool biased, const RunShape& run) {
  transform_.emplace(Linear::Spec{.rows = rows(),
                                  .in = hidden_,
                                  .tensors = {tensor},
                                  .bias = biased,
                                  .input_major = false,
                                  .dtype = run.dtype,
                                  .device = run.device,
                                  .gelu_after = Gelu::erf,
                                  .adapter_dropout = run.adapter_dropout()});
}

std::size_t HeadInput::scratch_bytes(int threads) const {
  const std::size_t most = std::max(norm_->scratch_bytes(), loss_rows_.scratch_bytes());
  return transform_ ? std::max(most, transform_->scratch_bytes(threads)) : most;
}

void HeadInput::list_products(std::vector<device::ProductShape>& out) const {
  if (transform_) transform_->list_products(out);
}

double HeadInput::flops(bool forward, bool backward) const {
  if (!transform_) return 0;
  return (forward ? transform_->forward_flops() : 0) + (backward ? transform_->backward_flops() : 0);
}

ConstView HeadInput::selected_rows(const Context& c, const HeadWorkspace& p, ConstView x) const {
  return selects() ? ConstView(p.selected.of(c.workspace)) : x;
}

ConstView HeadInput::transform_input(const Context& c, const HeadWorkspace& p, ConstView x) const {
  return entry_norm_ ? ConstView(p.entry_normed.of(c.workspace)) : selected_rows(c, p, x);
}

ConstView HeadInput::norm_input(const Context& c, const HeadWorkspace& p, ConstView x) const {
  return transform_ ? ConstView(p.active.of(c.workspace)) : selected_rows(c, p, x);
}

void HeadInput::forward(Lane& lane, const Context& c, const HeadWorkspace& p, ConstView x,
                        const device::Dropout& adapter_dropout) const {
  const View no_bias = p.no_bias.of(c.workspace);
  const ConstView selected = loss_rows_.select(lane, c, x, p.selected.of(c.workspace));
  if (entry_norm_)
    entry_norm_->forward(lane, c.parameters, selected, p.entry_normed.of(c.workspace), p.entry_mean.of(c.workspace),
                         p.entry_rstd.of(c.workspace), no_bias);
  if (transform_)
    transform_->forward(lane, c.parameters, transform_input(c, p, x), p.inner.of(c.workspace),
                        p.scratch.of(c.workspace), p.active.of(c.workspace), adapter_dropout);
  norm_->forward(lane, c.parameters, norm_input(c, p, x), p.normed.of(c.workspace), p.mean.of(c.workspace),
                 p.rstd.of(c.workspace), no_bias);
}

void HeadInput::backward(Lane& lane, const Context& c, const HeadWorkspace& p, ConstView x, ConstView d_norm, View dx,
                         const GradientRange& gradients, const device::Dropout& adapter_dropout) const {
  const View scratch = p.scratch.of(c.workspace), no_bias = p.no_bias.of(c.workspace);
  // Nothing reads the norm's output again nor, after the norm's backward, its input: gradients take their memory.
  const View d_norm_input = transform_ || selects() ? p.normed.of(c.workspace) : dx;
  const View d_selected = !selects()    ? dx
                          : entry_norm_ ? p.entry_normed.of(c.workspace)
                          : transform_  ? p.active.of(c.workspace)
                                        : d_norm_input;
  norm_->backward(lane, c.parameters, d_norm, norm_input(c, p, x), p.mean.of(c.workspace), p.rstd.of(c.workspace), {},
                  d_norm_input, gradients, scratch, no_bias);
  const View d_transform_input = entry_norm_ ? p.active.of(c.workspace) : d_selected;
  if (transform_) {
    activation_backward(lane, device::Activation::gelu_erf, d_norm_input, p.inner.of(c.workspace), d_norm_input);
    transform_->backward(lane, c.parameters, transform_input(c, p, x), d_norm_input, d_transform_input, gradients,
                         scratch, {}, adapter_dropout);
  }
  if (entry_norm_)
    entry_norm_->backward(lane, c.parameters, d_transform_input, selected_rows(c, p, x), p.entry_mean.of(c.workspace),
                          p.entry_rstd.of(c.workspace), {}, d_selected, gradients, scratch, no_bias);
  if (selects()) loss_rows_.put_back(lane, c, d_selected, dx, scratch);
}

namespace {

using device::DType;
using device::ProductShape;

// The maximum number of bytes of fp32 logits at any time: enough for full-speed products, small compared to a model. A
// GPU's products need thousands of rows, and each chunk reads and writes the table's gradient once.
constexpr std::size_t logit_bytes(device::Kind kind) {
  return kind == device::Kind::cpu ? std::size_t{64} << 20 : std::size_t{2} << 30;
}
// The minimum chunk size, because the head's weights are read once per chunk. A GPU's is a multiple of the largest
// tiles of its products.
constexpr std::size_t kMinRows = 64, kGpuRows = 256;

// Rows and columns of logits, and the inner size of their products.
struct Sizes {
  std::int64_t m, n, d;
};

ProductShape forward(const Sizes& s, DType t, bool bias, bool accumulate = false) {
  const auto stride = static_cast<std::int64_t>(logit_stride(static_cast<std::size_t>(s.n)));
  return {s.m, s.n, s.d, false, true, s.d, s.d, stride, t, DType::fp32, bias, accumulate};
}
std::int64_t stride_of_gradient(const Sizes& s, DType t) {
  return static_cast<std::int64_t>(gradient_stride(static_cast<std::size_t>(s.n), t));
}
ProductShape backward_input(const Sizes& s, DType t, bool accumulate = true) {
  return {s.m, s.d, s.n, false, false, stride_of_gradient(s, t), s.d, s.d, t, DType::fp32, false, accumulate};
}
ProductShape backward_weights(const Sizes& s, DType t, bool accumulate) {
  return {s.n, s.d, s.m, true, false, stride_of_gradient(s, t), s.d, s.d, t, DType::fp32, false, accumulate};
}

Sizes sizes(std::size_t rows, std::size_t columns, std::size_t hidden) {
  return {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), static_cast<std::int64_t>(hidden)};
}

}  // namespace

std::size_t chunk_rows(std::size_t tokens, std::size_t vocabulary, device::Kind kind) {
  const std::size_t grain = kind == device::Kind::cpu ? 1 : kGpuRows;
  const std::size_t most = std::max({kMinRows, grain, logit_bytes(kind) / sizeof(float) / vocabulary / grain * grain});
  const std::size_t chunks = (tokens + most - 1) / most, even = (tokens + chunks - 1) / chunks;
  return std::min(tokens, (even + grain - 1) / grain * grain);
}

TileProducts::TileProducts(std::size_t n_rows, std::size_t n_columns, std::size_t hidden, bool bias,
                           const LowRank& low_rank, const RunShape& run)
    : rows(n_rows),
      columns(n_columns),
      // DoRA does not scale the bias, which is therefore added later.
      logits(run.device, forward(sizes(rows, n_columns, hidden), run.dtype, bias && !low_rank.dora)),
      input(run.device, backward_input(sizes(rows, n_columns, hidden), run.dtype)),
      weights_first(run.device, backward_weights(sizes(rows, n_columns, hidden), run.dtype, false)),
      weights_more(run.device, backward_weights(sizes(rows, n_columns, hidden), run.dtype, true)) {
  if (low_rank.rank == 0) return;
  const Sizes s = sizes(rows, n_columns, low_rank.rank);
  const auto make = [&](const ProductShape& shape) { return device::Product(run.device, shape); };
  adapter.emplace(OfAdapter{make(forward(s, run.dtype, false, true)), make(backward_input(s, run.dtype)),
                            make(backward_weights(s, run.dtype, false)), make(backward_weights(s, run.dtype, true)),
                            std::nullopt});
  if (low_rank.dora && run.adapter_dropout() > 0)
    adapter->input.emplace(run.device, backward_input(sizes(rows, n_columns, hidden), run.dtype, false));
}

std::size_t TileProducts::workspace(int threads) const {
  std::size_t most = 0;
  for (const device::Product* product : {&logits, &input, &weights_first, &weights_more})
    most = std::max(most, product->workspace_bytes(threads));
  if (!adapter) return most;
  for (const device::Product* product : {&adapter->logits, &adapter->down, &adapter->b_first, &adapter->b_more})
    most = std::max(most, product->workspace_bytes(threads));
  return adapter->input ? std::max(most, adapter->input->workspace_bytes(threads)) : most;
}

void TileProducts::list(std::vector<ProductShape>& out, bool first, bool learns_table) const {
  out.push_back(logits.shape());
  out.push_back(input.shape());
  if (learns_table) out.push_back((first ? weights_first : weights_more).shape());
  if (!adapter) return;
  for (const auto* product : {&adapter->logits, &adapter->down, first ? &adapter->b_first : &adapter->b_more})
    out.push_back(product->shape());
  if (!adapter->input) return;
  out.push_back(logits.shape());
  out.push_back(adapter->input->shape());
}

HeadTable::HeadTable(std::size_t vocabulary, std::size_t hidden, const RunShape& run)
    : hidden_(hidden), tiles_(vocabulary, run.device.kind, run.shards) {}

void HeadTable::place(std::vector<std::size_t> rows, std::vector<std::size_t> biases) {
  rows_ = std::move(rows);
  biases_ = std::move(biases);
}

void HeadTable::prepare(std::size_t rows, std::size_t chunk_rows, const LowRank& adapter, const RunShape& run) {
  chunk_rows_ = chunk_rows;
  for (const std::size_t some : {chunk_rows, rows % chunk_rows}) {
    std::vector<TileProducts>& products = products_[some == chunk_rows ? 0 : 1];
    if (some == 0 || !products.empty()) continue;
    for (const std::size_t columns : tiles_.widths())
      products.emplace_back(some, columns, hidden_, biased(), adapter, run);
  }
}

std::size_t HeadTable::workspace(int threads) const {
  std::size_t most = 0;
  for (const auto& of_rows : products_)
    for (const TileProducts& products : of_rows) most = std::max(most, products.workspace(threads));
  return most;
}

std::size_t HeadTable::column_workspace() const {
  std::size_t most = 0;
  for (const auto& of_rows : products_)
    for (const TileProducts& products : of_rows)
      most = std::max(most, device::column_sum_workspace(products.rows, products.columns));
  return most;
}

device::LogitTile HeadTable::logit_tile(std::size_t rows, std::size_t tile, device::View logits) const {
  const std::size_t columns = tiles_.rows(tile);
  return {rows, tiles_.first(tile), columns, logit_stride(columns), logits, tiles_.row_in_shard(tile) == 0};
}

void HeadTable::add_to_bias(Lane& lane, const Context& c, const HeadWorkspace& p, const HeadTile& at,
                            ConstView d_logits) const {
  const std::size_t columns = tiles_.rows(at.tile);
  const View sum = words_in(p.d_logit_bias.of(c.workspace), at.tile);
  const View chunk_gradient = at.row == 0 ? sum : p.chunk_gradient.of(c.workspace).sub(0, columns);
  column_sum(lane, at.rows, columns, gradient_stride(columns, d_logits.dtype), d_logits, chunk_gradient,
             p.scratch.of(c.workspace));
  if (at.row > 0) add(lane, chunk_gradient, sum);
}

void HeadTable::zero_gaps(device::Lane& lane, const GradientRange& gradients) const {
  const auto zero_from = [&](std::size_t from, std::size_t to) {
    if (from < to) zero(lane, gradients.sub(from, to - from));
  };
  std::size_t end = gradients.begin;
  for (std::size_t tile = 0; tile < count(); ++tile) {
    zero_from(end, begin(tile));
    end = begin(tile) + size(tile);
  }
  zero_from(end, gradients.begin + gradients.values.size);
}

using device::ConstView;
using device::Lane;
using device::View;

std::size_t LossRows::scratch_bytes() const {
  return selects_ ? device::embedding_backward_workspace(count_, tokens_) : 0;
}

ConstView LossRows::select(Lane& lane, const Context& c, ConstView x, View selected) const {
  if (!selects_) return x;
  embedding_forward(lane, count_, width_, c.batch.loss_rows, {0, tokens_, tokens_}, x, selected);
  return selected;
}

void LossRows::put_back(Lane& lane, const Context& c, ConstView d, View dx, View scratch) const {
  STRATA_CHECK(selects_);
  embedding_backward(lane, count_, width_, c.batch.loss_rows, {0, tokens_, tokens_}, d, dx, scratch);
}

using device::DType;
using device::RowStatistics;

HeadWorkspace::HeadWorkspace(const Shape& s) {
  const std::size_t size = s.rows * s.hidden;
  const bool fp32 = s.dtype == DType::fp32;
  Slots work;
  scratch = work.add_bytes(s.scratch_bytes);
  mean = work.add(s.rows, DType::fp32);
  rstd = work.add(s.rows, DType::fp32);
  losses = work.add(s.rows, DType::fp32);
  statistics = work.add_bytes(s.rows * sizeof(RowStatistics));
  selected = work.add(s.selects ? size : 0, s.dtype);
  inner = work.add(s.transforms ? size : 0, s.dtype);
  active = work.add(s.transforms ? size : 0, s.dtype);
  entry_normed = work.add(s.has_entry_norm ? size : 0, s.dtype);
  entry_mean = work.add(s.has_entry_norm ? s.rows : 0, DType::fp32);
  entry_rstd = work.add(s.has_entry_norm ? s.rows : 0, DType::fp32);
  no_bias = work.add(s.centred ? s.hidden : 0, s.dtype);
  normed = work.add(size, s.dtype);
  // Sums over tiles; the sums of several shards are added by a tree and rounded, unless other ranks add theirs.
  d_normed = work.add(s.learns && (s.shards == 0 || s.shared || fp32) ? size : 0, DType::fp32);
  d_normed_rounded = work.add(s.learns && !fp32 && !s.shared ? size : 0, s.dtype);
  shard_d_normed = work.add(s.learns ? s.shards * s.chunk_rows * s.hidden : 0, DType::fp32);
  shard_statistics = work.add_bytes(s.shared ? 0 : s.shards * s.chunk_rows * sizeof(RowStatistics));
  logits = work.add(s.chunk_rows * s.logit_stride, DType::fp32);
  // In fp32 the gradient buffer itself is the sum over chunks.
  d_weight = work.add(s.learns && s.learns_table && !fp32 ? s.table_rows * s.hidden : 0, DType::fp32);
  logit_bias = work.add(s.biased ? s.words : 0, s.dora ? DType::fp32 : s.dtype);  // as what it is added to
  d_logit_bias = work.add(s.learns && s.learns_words ? s.words : 0, DType::fp32);
  chunk_gradient = work.add(s.learns && (s.learns_words || s.dora) ? s.max_words : 0, DType::fp32);
  const std::size_t thin = s.rows * s.rank;
  down = work.add(thin, s.dtype);
  shard_d_down = work.add(s.learns ? std::max<std::size_t>(s.shards, 1) * thin : 0, DType::fp32);
  d_down = work.add(s.learns ? thin : 0, s.dtype);
  dropped = work.add(s.drops ? size : 0, s.dtype);
  d_b = work.add(s.learns && !fp32 ? s.table_rows * s.rank : 0, DType::fp32);
  const std::size_t words = s.dora ? s.words : 0;
  kept_a = work.add(s.dora ? s.hidden * s.rank : 0, s.dtype);
  magnitudes = work.add(words, s.dtype);
  norms = work.add(words, DType::fp32);
  scales = work.add(words, DType::fp32);
  d_magnitudes = work.add(s.learns ? words : 0, DType::fp32);
  scaled = work.add(s.chunk_rows * s.scaled_stride, DType::fp32);
  d_dropped = work.add(s.learns && s.dora && s.drops ? s.chunk_rows * s.hidden : 0, DType::fp32);
  one_tile = s.one_tile;
  bytes = work.bytes();
}

}  // namespace strata::models
