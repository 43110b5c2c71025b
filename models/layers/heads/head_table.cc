#include "models/layers/heads/head_table.h"

#include <algorithm>
#include <utility>

#include "device/ops/elementwise.h"

namespace strata::models {

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
