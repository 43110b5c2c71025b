#include "models/layers/heads/head_table.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "device/ops/elementwise.h"

namespace strata::models {
namespace {

using device::DType;
using device::ProductShape;

// The most fp32 logits that exist at once, in bytes: enough for full-speed products, small compared to a model. A GPU's
// products need thousands of rows, and each chunk reads and writes the table's gradient once.
constexpr std::size_t logit_bytes(device::Kind kind) {
  return kind == device::Kind::cpu ? std::size_t{64} << 20 : std::size_t{2} << 30;
}
// The smallest chunk, because the head's weights are read once per chunk. A GPU's is a multiple of the largest tiles of
// its products.
constexpr std::size_t kMinRows = 64, kGpuRows = 256;

// Rows and columns of logits, and the inner size of their products.
struct Sizes {
  std::int64_t m, n, d;
};

ProductShape forward(const Sizes& s, DType t, bool bias) {
  const auto stride = static_cast<std::int64_t>(logit_stride(static_cast<std::size_t>(s.n)));
  return {s.m, s.n, s.d, false, true, s.d, s.d, stride, t, DType::fp32, bias, false};
}
std::int64_t gradient_stride(const Sizes& s, DType t) {
  return static_cast<std::int64_t>(logit_stride(static_cast<std::size_t>(s.n)) * sizeof(float) / size_of(t));
}
ProductShape backward_input(const Sizes& s, DType t) {
  return {s.m, s.d, s.n, false, false, gradient_stride(s, t), s.d, s.d, t, DType::fp32, false, true};
}
ProductShape backward_weights(const Sizes& s, DType t, bool accumulate) {
  return {s.n, s.d, s.m, true, false, gradient_stride(s, t), s.d, s.d, t, DType::fp32, false, accumulate};
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
                           const RunShape& run)
    : rows(n_rows),
      columns(n_columns),
      logits(run.device, forward(sizes(rows, n_columns, hidden), run.dtype, bias)),
      input(run.device, backward_input(sizes(rows, n_columns, hidden), run.dtype)),
      weights_first(run.device, backward_weights(sizes(rows, n_columns, hidden), run.dtype, false)),
      weights_more(run.device, backward_weights(sizes(rows, n_columns, hidden), run.dtype, true)) {}

std::size_t TileProducts::workspace(int threads) const {
  return std::max({logits.workspace_bytes(threads), input.workspace_bytes(threads),
                   weights_first.workspace_bytes(threads), weights_more.workspace_bytes(threads)});
}

HeadTable::HeadTable(std::size_t vocabulary, std::size_t hidden, const RunShape& run)
    : hidden_(hidden), tiles_(vocabulary, run.device.kind, run.shards) {}

void HeadTable::place(std::vector<std::size_t> rows, std::vector<std::size_t> biases) {
  rows_ = std::move(rows);
  biases_ = std::move(biases);
}

void HeadTable::prepare(std::size_t rows, std::size_t chunk_rows, const RunShape& run) {
  chunk_rows_ = chunk_rows;
  for (const std::size_t some : {chunk_rows, rows % chunk_rows}) {
    std::vector<TileProducts>& products = products_[some == chunk_rows ? 0 : 1];
    if (some == 0 || !products.empty()) continue;
    for (const std::size_t columns : tiles_.widths()) products.emplace_back(some, columns, hidden_, biased(), run);
  }
}

std::size_t HeadTable::workspace(int threads) const {
  std::size_t most = 0;
  for (const auto& of_rows : products_)
    for (const TileProducts& products : of_rows) most = std::max(most, products.workspace(threads));
  return most;
}

std::size_t HeadTable::bias_workspace() const {
  std::size_t most = 0;
  for (const auto& of_rows : products_)
    for (const TileProducts& products : of_rows)
      most = std::max(most, device::column_sum_workspace(products.rows, products.columns));
  return most;
}

}  // namespace strata::models
