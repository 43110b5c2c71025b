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
#include "models/layers/heads/head_dora.h"
#include "models/layers/heads/head_parts.h"
#include "models/model.h"

namespace strata::models {

// The low-rank adapter of a head's projection: logits += (s x A^T) B^T, where x is the output of the head's norm. With
// DoRA, these sums are then scaled (HeadDora). B [vocabulary, rank] is cut into the table's tiles. A [rank, hidden] is
// complete on every rank and belongs to the part of the norm, so s x A^T is computed once, for all rows. The gradient
// of s x A^T is summed over tiles and then over virtual shards, and rounded once, before it is multiplied. So ranks
// that share the head exchange [rows, rank], and each of them computes all of dA.
class HeadAdapter {
 public:
  // `layer`: the projection, with the adapter that add_low_rank() added for these shards. `parameters`: the head's,
  // with their offsets. rows: the rows of the head's input. drops: x has dropout. `table` outlives the adapter.
  HeadAdapter(const Unit::LinearLayer& layer, std::span<const Parameter> parameters, const HeadTable& table,
              const ShardRange& shards, std::size_t rows, std::size_t hidden, bool drops);
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
  // DoRA's: the FLOPs of norms of this many words; how many more products with the table a forward (and backward) has;
  // and how many more passes over the logits. 0 without DoRA.
  double flops_of_norms(double words) const { return dora_ ? dora_->flops_of_norms(words) : 0; }
  double more_products(bool learns) const { return !dora_ || !dora_->drops() ? 0 : learns ? 2 : 1; }
  double more_passes(bool learns) const { return !dora_ ? 0 : learns ? 4 : 1; }

  // A micro-batch makes these calls in this order. project() computes s x A^T from the norm's output. logits() computes
  // the logits of a chunk of rows for a tile of the table, w. add_gradients() takes the gradient of these logits, and
  // adds that of x through w to d_input; DoRA replaces d_logits by the gradient of what it scales, and uses the memory
  // `unscaled`. For DoRA, measure() precedes a tile's first logits, and scale_again() writes a tile's logits again if
  // they share memory with those of other tiles. After the last chunk of a tile, round_gradient() writes dB. If ranks
  // share the head, write_partial_gradient() writes the gradient of s x A^T, summed over this rank's shards. backward()
  // writes dA and the gradient of the magnitudes, and adds the gradient of x through A to d_norm. If `total` is not
  // empty, it holds sums over ranks: of d_norm, and then of the results of write_partial_gradient(). `dropout` applies
  // to x, and is the same in all calls.
  void project(device::Lane&, const Context&, const HeadWorkspace& p, const device::Dropout& dropout) const;
  void measure(device::Lane&, const Context&, const HeadWorkspace& p, std::size_t tile, device::ConstView w) const;
  void logits(device::Lane&, const Context&, const HeadWorkspace& p, const HeadTile& at, device::ConstView w,
              const TileLogits& to) const;
  void scale_again(device::Lane&, const Context&, const HeadWorkspace& p, const HeadTile& at,
                   const TileLogits& to) const;
  void add_gradients(device::Lane&, const Context&, const HeadWorkspace& p, const HeadTile& at, device::ConstView w,
                     device::View d_logits, device::View unscaled, device::View d_input, const GradientRange& gradients,
                     const device::Dropout& dropout) const;
  void round_gradient(device::Lane&, const Context&, const HeadWorkspace& p, std::size_t tile,
                      const GradientRange& gradients) const;
  void write_partial_gradient(device::Lane&, const Context&, const HeadWorkspace& p, device::View to) const;
  void backward(device::Lane&, const Context&, const HeadWorkspace& p, device::ConstView total, device::View d_norm,
                const GradientRange& gradients, const device::Dropout& dropout) const;

  // For a single row: project_row() writes down[rank] = s A x, and add_to_row() adds B x down to a tile's logits, which
  // are w x. `added` is memory for the fp32 logits of a tile. For DoRA, add_to_row() also multiplies them by the tile's
  // scales, which measure_row() computes with dora_row_bytes() of memory, for all rows with the same parameters.
  bool has_dora() const { return dora_.has_value(); }
  std::size_t dora_row_bytes() const { return dora_ ? dora_->row_bytes() : 0; }
  void project_row(device::Lane&, const ParameterRange& parameters, device::ConstView x, device::View down) const;
  void measure_row(device::Lane&, const ParameterRange& parameters, std::size_t tile, device::ConstView w,
                   device::View scales, device::View memory) const;
  void add_to_row(device::Lane&, const ParameterRange& parameters, std::size_t tile, device::ConstView down,
                  device::View logits, device::View added, device::ConstView scales) const;

 private:
  device::ConstView a(const ParameterRange& parameters) const { return parameters.sub(at_.a, at_.rank * hidden_); }
  // The tile's rows of B or of its gradient.
  template <typename V>
  V b(const FlatRange<V>& flat, std::size_t tile) const {
    const std::size_t row = table_.tiles().row_in_shard(tile);
    return flat.sub(b_[table_.shard(tile)] + row * at_.rank, table_.rows(tile) * at_.rank);
  }
  device::View sum_of(const Context&, const HeadWorkspace&, std::size_t tile, const GradientRange& gradients) const;

  struct Products {
    device::Product down, d_a, input;
  };

  LowRank at_;
  std::vector<std::size_t> b_;
  const HeadTable& table_;
  std::size_t rows_, hidden_;
  std::optional<HeadDora> dora_;
  std::optional<Products> products_;
};

}  // namespace strata::models
