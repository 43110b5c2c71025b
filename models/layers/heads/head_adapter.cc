#include "models/layers/heads/head_adapter.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "device/ops/dora.h"

namespace strata::models {

using device::ConstView;
using device::DType;
using device::Lane;
using device::Product;
using device::View;

HeadAdapter::HeadAdapter(const Unit::LinearLayer& layer, std::span<const Parameter> parameters, const HeadTable& table,
                         const ShardRange& shards, std::size_t rows, std::size_t hidden, bool drops)
    : at_(layer.low_rank), table_(table), rows_(rows), hidden_(hidden) {
  std::vector<std::size_t> magnitudes;
  if (shards.of == 1) {
    b_ = {at_.b};
    magnitudes = {at_.magnitude};
  } else {
    at_.a = parameters[layer.low_rank.a].offset;
    for (std::size_t shard = 0; shard < shards.count; ++shard) {
      b_.push_back(parameters[layer.low_rank.b].offset_of(shard));
      if (at_.dora) magnitudes.push_back(parameters[layer.low_rank.magnitude].offset_of(shard));
    }
  }
  if (at_.dora) dora_.emplace(at_, std::move(magnitudes), table, hidden, drops);
}

void HeadAdapter::prepare(const RunShape& run) {
  const auto m = static_cast<std::int64_t>(rows_), d = static_cast<std::int64_t>(hidden_);
  const auto r = static_cast<std::int64_t>(at_.rank);
  const DType t = run.dtype;
  const auto make = [&](const device::ProductShape& shape) { return Product(run.device, shape); };
  // With dropout, the gradient through A gets the dropout of x before it is added.
  const bool adds = run.adapter_dropout() == 0;
  products_.emplace(Products{make({m, r, d, false, true, d, d, r, t, t}), make({r, d, m, true, false, r, d, d, t, t}),
                             make({m, d, r, false, false, r, d, d, t, t, false, adds})});
}

std::size_t HeadAdapter::workspace(int threads) const {
  std::size_t most = 0;
  for (const Product* product : {&products_->down, &products_->d_a, &products_->input})
    most = std::max(most, product->workspace_bytes(threads));
  return dora_ ? std::max(most, dora_->workspace()) : most;
}

void HeadAdapter::list_products(std::vector<device::ProductShape>& out) const {
  for (const Product* product : {&products_->down, &products_->d_a, &products_->input}) out.push_back(product->shape());
}

double HeadAdapter::flops_of_a(bool forward, bool backward) const {
  return ((forward ? 1 : 0) + (backward ? 2 : 0)) * 2 * static_cast<double>(crossing() * hidden_);
}

double HeadAdapter::flops_of_b(double words, bool learns) const {
  return (learns ? 3 : 1) * 2 * static_cast<double>(crossing()) * words;
}

void HeadAdapter::project(Lane& lane, const Context& c, const HeadWorkspace& p, const device::Dropout& dropout) const {
  ConstView x = p.normed.of(c.workspace);
  if (dropout.probability > 0) {
    const View left = p.dropped.of(c.workspace);
    device::dropout(lane, dropout, x, {}, left);
    x = left;
  }
  const View down = p.down.of(c.workspace);
  products_->down.run(lane, x, a(c.parameters), {}, down, p.scratch.of(c.workspace));
  if (at_.scale != 1) scale(lane, down, at_.scale, down);
  if (p.shard_d_down.size > 0) zero(lane, p.shard_d_down.of(c.workspace));
  if (dora_) dora_->keep(lane, c, p, a(c.parameters));
}

void HeadAdapter::measure(Lane& lane, const Context& c, const HeadWorkspace& p, std::size_t tile, ConstView w) const {
  if (dora_) dora_->measure(lane, c, p, tile, w, b(c.parameters, tile));
}

void HeadAdapter::logits(Lane& lane, const Context& c, const HeadWorkspace& p, const HeadTile& at, ConstView w,
                         const TileLogits& to) const {
  const TileProducts& products = table_.products(at.rows, at.tile);
  const View scratch = p.scratch.of(c.workspace), z = dora_ ? to.unscaled : to.logits;
  const auto chunk = [&](const Slot& of_x) { return of_x.of(c.workspace).sub(at.row * hidden_, at.rows * hidden_); };
  const ConstView bias = table_.biased() && !dora_ ? table_.words_in(p.logit_bias.of(c.workspace), at.tile) : View{};
  const bool drops = dora_ && dora_->drops();
  products.logits.run(lane, chunk(drops ? p.dropped : p.normed), w, bias, z, scratch);
  if (drops) {
    const std::size_t columns = table_.rows(at.tile);
    products.logits.run(lane, chunk(p.normed), w, {}, to.logits, scratch);
    scale_columns(lane, at.rows, columns, logit_stride(columns), to.logits, {}, {}, to.logits, z, -1);
  }
  const ConstView down = p.down.of(c.workspace).sub(at.row * at_.rank, at.rows * at_.rank);
  products.adapter->logits.run(lane, down, b(c.parameters, at.tile), {}, z, scratch);
  if (dora_) dora_->scale(lane, c, p, at, to);
}

// With dropout, the scaled logits of all tiles are kept.
void HeadAdapter::scale_again(Lane& lane, const Context& c, const HeadWorkspace& p, const HeadTile& at,
                              const TileLogits& to) const {
  if (dora_ && !dora_->drops()) dora_->scale(lane, c, p, at, to);
}

void HeadAdapter::add_gradients(Lane& lane, const Context& c, const HeadWorkspace& p, const HeadTile& at, ConstView w,
                                View d_logits, View unscaled, View d_input, const GradientRange& gradients,
                                const device::Dropout& dropout) const {
  const auto [row, rows, tile] = at;
  const auto& product = *table_.products(rows, tile).adapter;
  const View scratch = p.scratch.of(c.workspace);
  const std::size_t size = rows * at_.rank;
  if (dora_)
    dora_->backward(lane, c, p, at, w, d_logits, unscaled, d_input, dropout);
  else
    table_.products(rows, tile).input.run(lane, d_logits, w, {}, d_input, scratch);
  const View d_down = p.shard_d_down.of(c.workspace).sub(table_.shard(tile) * crossing() + row * at_.rank, size);
  product.down.run(lane, d_logits, b(c.parameters, tile), {}, d_down, scratch);
  (row == 0 ? product.b_first : product.b_more)
      .run(lane, d_logits, p.down.of(c.workspace).sub(row * at_.rank, size), {}, sum_of(c, p, tile, gradients),
           scratch);
}

// In fp32, the gradient is itself the sum over chunks.
View HeadAdapter::sum_of(const Context& c, const HeadWorkspace& p, std::size_t tile,
                         const GradientRange& gradients) const {
  if (p.d_b.size == 0) return b(gradients, tile);
  return table_.rows_of_sum(p.d_b.of(c.workspace), tile, at_.rank, p.one_tile);
}

void HeadAdapter::round_gradient(Lane& lane, const Context& c, const HeadWorkspace& p, std::size_t tile,
                                 const GradientRange& gradients) const {
  if (p.d_b.size > 0) cast(lane, sum_of(c, p, tile, gradients), b(gradients, tile));
}

// Scaled here, so that neither B's gradient nor A's has to be scaled.
void HeadAdapter::write_partial_gradient(Lane& lane, const Context& c, const HeadWorkspace& p, View to) const {
  const View shard_gradients = p.shard_d_down.of(c.workspace);
  if (at_.scale != 1) scale(lane, shard_gradients, at_.scale, shard_gradients);
  tree_sum(lane, shard_gradients.size / crossing(), shard_gradients, {}, to);
}

void HeadAdapter::backward(Lane& lane, const Context& c, const HeadWorkspace& p, ConstView total, View d_norm,
                           const GradientRange& gradients, const device::Dropout& dropout) const {
  const View scratch = p.scratch.of(c.workspace), d_down = p.d_down.of(c.workspace);
  if (dora_) dora_->round_gradient(lane, c, p, gradients);
  if (total) {
    cast(lane, total.sub(0, d_norm.size), d_norm);
    cast(lane, total.sub(d_norm.size, crossing()), d_down);
  } else {
    write_partial_gradient(lane, c, p, d_down);
  }
  const bool drops = dropout.probability > 0;
  products_->d_a.run(lane, d_down, (drops ? p.dropped : p.normed).of(c.workspace), {},
                     gradients.sub(at_.a, at_.rank * hidden_), scratch);
  if (!drops) return products_->input.run(lane, d_down, a(c.parameters), {}, d_norm, scratch);
  const View dx = p.dropped.of(c.workspace);
  products_->input.run(lane, d_down, a(c.parameters), {}, dx, scratch);
  device::dropout(lane, dropout, dx, d_norm, d_norm);
}

void HeadAdapter::project_row(Lane& lane, const ParameterRange& parameters, ConstView x, View down) const {
  device::matvec(lane, {at_.rank, hidden_}, a(parameters), x, {}, down);
  if (at_.scale != 1) scale(lane, down, at_.scale, down);
}

void HeadAdapter::measure_row(Lane& lane, const ParameterRange& parameters, std::size_t tile, ConstView w, View scales,
                              View memory) const {
  dora_->measure_row(lane, parameters, tile, w, a(parameters), b(parameters, tile), scales, memory);
}

void HeadAdapter::add_to_row(Lane& lane, const ParameterRange& parameters, std::size_t tile, ConstView down,
                             View logits, View added, ConstView scales) const {
  const View of_tile = added.sub(0, table_.rows(tile));
  device::matvec(lane, {table_.rows(tile), at_.rank}, b(parameters, tile), down, {}, of_tile);
  add(lane, of_tile, logits);
  if (dora_) HeadDora::scale_row(lane, scales, logits);
}

}  // namespace strata::models
