#include "models/layers/heads/head_dora.h"

#include <algorithm>

#include "device/ops/elementwise.h"
#include "models/layers/slots.h"

namespace strata::models {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

std::size_t HeadDora::workspace() const {
  return std::max(device::dora_workspace(shape(max_words())), table_.column_workspace());
}

double HeadDora::flops_of_norms(double words) const {
  return 2 * words * static_cast<double>(hidden_ * (at_.rank + 1));
}

void HeadDora::keep(Lane& lane, const Context& c, const HeadWorkspace& p, ConstView a) const {
  cast(lane, a, p.kept_a.of(c.workspace));
  for (std::size_t tile = 0; tile < table_.count(); ++tile)
    cast(lane, magnitudes(c.parameters, tile), words(p.magnitudes, c, tile));
}

void HeadDora::measure(Lane& lane, const Context& c, const HeadWorkspace& p, std::size_t tile, ConstView w,
                       ConstView b) const {
  const View norms = words(p.norms, c, tile);
  dora_squares(lane, shape(table_.rows(tile)), w, p.kept_a.of(c.workspace), b, norms, p.scratch.of(c.workspace));
  dora_scales(lane, norms, words(p.magnitudes, c, tile), norms, words(p.scales, c, tile));
}

void HeadDora::scale(Lane& lane, const Context& c, const HeadWorkspace& p, const HeadTile& at,
                     const TileLogits& logits) const {
  const std::size_t columns = table_.rows(at.tile);
  const ConstView bias = table_.biased() ? ConstView(words(p.logit_bias, c, at.tile)) : ConstView{};
  scale_columns(lane, at.rows, columns, logit_stride(columns), logits.unscaled, words(p.scales, c, at.tile), bias,
                logits.logits, drops_ ? ConstView(logits.logits) : ConstView{});
}

// x's gradient is dy W, plus (dz - dy) W after dropout. Dropout is applied to each tile's part of the latter, so that
// both are one sum over tiles, shards and ranks.
void HeadDora::backward(Lane& lane, const Context& c, const HeadWorkspace& p, const HeadTile& at, ConstView w,
                        View d_logits, View z, View d_input, device::Dropout dropout) const {
  STRATA_CHECK(!table_.learns_rows());
  const TileProducts& products = table_.products(at.rows, at.tile);
  const std::size_t columns = table_.rows(at.tile), stride = gradient_stride(columns, d_logits.dtype);
  const View scratch = p.scratch.of(c.workspace), sum = words(p.d_magnitudes, c, at.tile);
  const View chunk_gradient = at.row == 0 ? sum : p.chunk_gradient.of(c.workspace).sub(0, columns);
  const ConstView scales = words(p.scales, c, at.tile);
  column_dot(lane, at.rows, columns, stride, d_logits, logit_stride(columns), z, words(p.norms, c, at.tile),
             chunk_gradient, scratch);
  if (at.row > 0) add(lane, chunk_gradient, sum);
  if (drops_) {
    products.input.run(lane, d_logits, w, {}, d_input, scratch);
    const View change{z.data, z.bytes() / size_of(d_logits.dtype), d_logits.dtype};
    scale_columns(lane, at.rows, columns, stride, d_logits, scales, {}, change, d_logits, -1);
    const View dx = p.d_dropped.of(c.workspace).sub(0, at.rows * hidden_);
    products.adapter->input->run(lane, change, w, {}, dx, scratch);
    dropout.first = at.row * hidden_;
    device::dropout(lane, dropout, dx, {}, dx);
    add(lane, dx, d_input);
  }
  scale_columns(lane, at.rows, columns, stride, d_logits, scales, {}, d_logits);
  if (!drops_) products.input.run(lane, d_logits, w, {}, d_input, scratch);
}

void HeadDora::round_gradient(Lane& lane, const Context& c, const HeadWorkspace& p,
                              const GradientRange& gradients) const {
  for (std::size_t tile = 0; tile < table_.count(); ++tile)
    cast(lane, words(p.d_magnitudes, c, tile), magnitudes(gradients, tile));
}

std::size_t HeadDora::row_bytes() const {
  return aligned(max_words() * sizeof(float)) + device::dora_workspace(shape(max_words()));
}

void HeadDora::measure_row(Lane& lane, const ParameterRange& parameters, std::size_t tile, ConstView w, ConstView a,
                           ConstView b, View scales, View memory) const {
  const std::size_t count = table_.rows(tile), bytes = aligned(max_words() * sizeof(float));
  const View norms{memory.data, count, DType::fp32};
  dora_squares(lane, shape(count), w, a, b, norms,
               View{memory.data + bytes, (memory.bytes() - bytes) / sizeof(float), DType::fp32});
  dora_scales(lane, norms, magnitudes(parameters, tile), norms, scales);
}

void HeadDora::scale_row(Lane& lane, ConstView scales, View logits) {
  scale_columns(lane, 1, logits.size, logits.size, logits, scales, {}, logits);
}

}  // namespace strata::models
