#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "device/lane.h"
#include "device/ops/elementwise.h"
#include "device/ops/products/product.h"
#include "device/view.h"
#include "models/adapter.h"
#include "models/flat_range.h"
#include "models/layers/heads/head_parts.h"
#include "models/model.h"

namespace strata::models {

// The low-rank adapter of a head's projection: logits += (s x A^T) B^T, where x is the output of the head's norm. B
// [vocabulary, rank] is cut into the table's tiles. A [rank, hidden] is complete on every rank and belongs to the part
// of the norm, so s x A^T is computed once, for all rows. The gradient of s x A^T is summed over tiles and then over
// virtual shards, and rounded once, before it is multiplied. So ranks that share the head exchange [rows, rank], and
// each of them computes all of dA.
class HeadAdapter {
 public:
  // `layer`: the projection, with the adapter that add_low_rank() added for these shards. `parameters`: the head's,
  // with their offsets. rows: the rows of the head's input. `table` outlives the adapter. Throws Error{usage} for DoRA.
  HeadAdapter(const Unit::LinearLayer& layer, std::span<const Parameter> parameters, const HeadTable& table,
              const ShardRange& shards, std::size_t rows, std::size_t hidden);
  // Prepares the products of all rows. HeadTable::prepare() prepares the products of chunks of rows.
  void prepare(const RunShape& run);

  std::size_t rank() const { return at_.rank; }
  // The number of elements [rows, rank] of its gradient that cross ranks.
  std::size_t crossing() const { return rows_ * at_.rank; }
  std::size_t workspace(int threads) const;
  void list_products(std::vector<device::ProductShape>& out) const;
  // The FLOPs of A, and of B for this many words. `learns`: those of the gradients too.
  double flops_of_a(bool forward, bool backward) const;
  double flops_of_b(double words, bool learns) const;

  // A micro-batch makes these calls in this order. project() computes s x A^T from the norm's output. add_to_logits()
  // adds B's contribution to the logits of a tile, for the chunk of rows that begins at `row`. add_gradients() takes
  // the gradient of these logits. After the last chunk of a tile, round_gradient() writes dB. If ranks share the head,
  // leave_gradient() writes the gradient of s x A^T, summed over this rank's shards. backward() writes dA, and adds the
  // gradient of x to d_norm. If `total` is not empty, it holds sums over ranks: of d_norm, and then of the results of
  // leave_gradient(). `dropout` applies to x, and is the same in both calls.
  void project(device::Lane&, const Context&, const HeadPlaces& p, const device::Dropout& dropout) const;
  void add_to_logits(device::Lane&, const Context&, const HeadPlaces& p, std::size_t row, std::size_t rows,
                     std::size_t tile, device::View logits) const;
  void add_gradients(device::Lane&, const Context&, const HeadPlaces& p, std::size_t row, std::size_t rows,
                     std::size_t tile, device::ConstView d_logits, const GradientRange& gradients) const;
  void round_gradient(device::Lane&, const Context&, const HeadPlaces& p, std::size_t tile,
                      const GradientRange& gradients) const;
  void leave_gradient(device::Lane&, const Context&, const HeadPlaces& p, device::View to) const;
  void backward(device::Lane&, const Context&, const HeadPlaces& p, device::ConstView total, device::View d_norm,
                const GradientRange& gradients, const device::Dropout& dropout) const;

  // For a single row: project_row() writes down[rank] = s A x, and add_to_row() adds B x down to a tile's logits.
  // `added` is memory for the fp32 logits of a tile.
  void project_row(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View down) const;
  void add_to_row(device::Lane&, const ParameterRange& parameters, std::size_t tile, device::ConstView down,
                  device::View logits, device::View added) const;

 private:
  device::ConstView a(const ParameterRange& parameters) const { return parameters.sub(at_.a, at_.rank * hidden_); }
  // The tile's rows of B or of its gradient.
  template <typename V>
  V b(const FlatRange<V>& flat, std::size_t tile) const {
    const std::size_t row = table_.tiles().row_in_shard(tile);
    return flat.sub(b_[table_.shard(tile)] + row * at_.rank, table_.rows(tile) * at_.rank);
  }
  device::View sum_of(const Context&, const HeadPlaces&, std::size_t tile, const GradientRange& gradients) const;

  struct Products {
    device::Product down, d_a, input;
  };

  LowRank at_;
  std::vector<std::size_t> b_;
  const HeadTable& table_;
  std::size_t rows_, hidden_;
  std::optional<Products> products_;
};

}  // namespace strata::models
