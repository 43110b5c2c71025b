#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "device/lane.h"
#include "device/numeric/dtype.h"
#include "device/ops/losses/losses.h"
#include "device/ops/products/product.h"
#include "device/view.h"
#include "models/flat_range.h"
#include "models/layers/heads/table_tiles.h"
#include "models/layers/linear/linear.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"
#include "models/model.h"

namespace strata::models {

// The rows of a micro-batch that enter a head's loss: those that the batch lists (RunShape::loss_rows), or all.
class LossRows {
 public:
  LossRows(const RunShape& run, std::size_t width)
      : tokens_(run.tokens()), width_(width), selects_(run.loss_rows > 0), count_(selects_ ? run.loss_rows : tokens_) {}

  bool selects() const { return selects_; }  // otherwise it takes all rows in place
  std::size_t count() const { return count_; }
  // Bytes of scratch that put_back() needs.
  std::size_t scratch_bytes() const;

  // The selected rows of x, [tokens, width], without gaps: in `selected`, or x itself.
  device::ConstView select(device::Lane&, const Context&, device::ConstView x, device::View selected) const;
  // If selects(): writes dx, [tokens, width], which is d in the rows that entered the loss, and 0 elsewhere.
  void put_back(device::Lane&, const Context&, device::ConstView d, device::View dx, device::View scratch) const;

 private:
  std::size_t tokens_, width_;
  bool selects_;
  std::size_t count_;
};

// The chunk of a head's rows that begins at `row`, and a tile of its table.
struct HeadTile {
  std::size_t row, rows, tile;
};
// The memory for its fp32 logits, which their gradients later replace. unscaled: of the same size, for the values that
// DoRA scales; empty without DoRA.
struct TileLogits {
  device::View logits, unscaled;
};

// The places of a head's values in the workspace of its call.
struct HeadWorkspace {
  struct Shape {
    std::size_t rows, chunk_rows, hidden;
    device::DType dtype;
    std::size_t scratch_bytes;
    // The sum of the strides of the tiles whose logits exist at the same time, and the rows of the tiles whose gradient
    // sums do.
    std::size_t logit_stride, table_rows;
    std::size_t words, max_words;  // all words of this rank's shards, and the maximum of a tile
    bool biased, learns, learns_table, learns_words;
    // The head selects rows; has a transform; has a norm before the transform; has a LayerNorm, perhaps without a bias.
    bool selects, transforms, has_entry_norm, centred;
    std::size_t shards;    // this rank's shards of the vocabulary; 0: it is not cut
    bool shared;           // whether ranks share the head, and add the gradients of the norm's output
    std::size_t rank = 0;  // the rank of the table's adapter; 0: no adapter
    bool drops = false;    // the adapter's input has dropout
    bool dora = false;
    // With DoRA: like logit_stride, but for the scaled logits. With dropout, the scaled logits of all tiles exist at
    // the same time, otherwise those of one tile.
    std::size_t scaled_stride = 0;
    bool one_tile = false;
  };
  HeadWorkspace() = default;
  explicit HeadWorkspace(const Shape& s);

  // The memory for the first tile's logits.
  TileLogits first_logits(device::View workspace) const {
    const device::View all = logits.of(workspace);
    return scaled.size > 0 ? TileLogits{scaled.of(workspace), all} : TileLogits{all, {}};
  }

  // The rows that enter the loss; the output of the norm before the transform; the transform's inner and final values.
  Slot selected, entry_normed, inner, active;
  Slot entry_mean, entry_rstd;
  Slot no_bias;  // stands in for the bias of norms without one
  Slot scratch, mean, rstd, losses, statistics, normed, d_normed, d_normed_rounded, logits, d_weight;
  // The logit biases, and the sum of their gradients: if the table is gathered by tiles, the unit's own parameters are
  // not available in between.
  Slot logit_bias, d_logit_bias;
  Slot chunk_gradient;  // a chunk's contribution to a gradient of one element per word, for the words of a tile
  // One chunk of rows, per virtual shard: the gradients of the norm's output, and the statistics.
  Slot shard_d_normed, shard_statistics;
  // The buffers of the table's adapter: s x A^T; the gradient of that, by virtual shard and complete; x after dropout,
  // later the gradient through it; the sum of B's gradient.
  Slot down, shard_d_down, d_down, dropped, d_b;
  // For DoRA: copies of A and of the magnitudes; for each word, |W + s B A|, what its logits are multiplied by, and the
  // sum of its magnitude's gradient; the scaled logits, later their gradients; the gradient of a chunk of x after
  // dropout.
  Slot kept_a, magnitudes, norms, scales, d_magnitudes, scaled, d_dropped;
  bool one_tile = false;  // the buffers for sums of gradients hold one tile at a time
  std::size_t bytes = 0;
};

// The part of a head that precedes its table: it selects the rows that enter the loss and applies the transform of a
// masked language model (an optional norm, a dense layer and the GELU of erf) and the final norm. A component of the
// head. Its tensors lie in the head's flat buffer.
class HeadInput {
 public:
  HeadInput(const RunShape& run, std::size_t hidden) : loss_rows_(run, hidden), hidden_(hidden) {}
  void set_norm(NormPart norm) { norm_.emplace(norm); }
  void set_entry_norm(NormPart norm) { entry_norm_.emplace(norm); }
  // `tensor`: the place of the transform's dense layer.
  void set_transform(const Linear::Tensor& tensor, bool biased, const RunShape& run);

  std::size_t rows() const { return loss_rows_.count(); }
  bool selects() const { return loss_rows_.selects(); }
  bool transforms() const { return transform_.has_value(); }
  bool has_entry_norm() const { return entry_norm_.has_value(); }
  const NormPart& norm() const { return *norm_; }
  std::size_t scratch_bytes(int threads) const;
  void list_products(std::vector<device::ProductShape>& out) const;
  double flops(bool forward, bool backward) const;  // operations of the transform

  // Computes `normed` in the workspace from x, [tokens, hidden].
  void forward(device::Lane&, const Context&, const HeadWorkspace&, device::ConstView x,
               const device::Dropout& adapter_dropout) const;
  // d_norm: the gradient of `normed`, whose memory is used. Writes dx and the gradients of the tensors.
  void backward(device::Lane&, const Context&, const HeadWorkspace&, device::ConstView x, device::ConstView d_norm,
                device::View dx, const GradientRange& gradients, const device::Dropout& adapter_dropout) const;

 private:
  // selected_rows(): the input of the first step. transform_input(): the input of the transform. norm_input(): the
  // input of the final norm.
  device::ConstView selected_rows(const Context&, const HeadWorkspace&, device::ConstView x) const;
  device::ConstView transform_input(const Context&, const HeadWorkspace&, device::ConstView x) const;
  device::ConstView norm_input(const Context&, const HeadWorkspace&, device::ConstView x) const;

  LossRows loss_rows_;
  std::size_t hidden_;
  std::optional<Linear> transform_;
  std::optional<NormPart> norm_, entry_norm_;
};

// The rows in each chunk of a head's `tokens` rows, chosen so that the fp32 logits of a chunk stay small compared to a
// model.
std::size_t chunk_rows(std::size_t tokens, std::size_t vocabulary, device::Kind kind);

// The stride between rows of a tile's logits, in elements. It avoids powers of two, because all rows would then share a
// few cache sets.
inline std::size_t logit_stride(std::size_t columns) {
  return (columns + 15) / 16 * 16 + 16;
}
// The same for their gradients, which replace them in their rows.
inline std::size_t gradient_stride(std::size_t columns, device::DType dtype) {
  return logit_stride(columns) * sizeof(float) / size_of(dtype);
}

// The products of a chunk of a head's rows with a tile of its table. Gradients replace the fp32 logits in their rows.
// The input's gradient is summed over tiles, the table's over chunks, in fp32.
struct TileProducts {
  // adapter: the table's.
  TileProducts(std::size_t rows, std::size_t columns, std::size_t hidden, bool bias, const LowRank& adapter,
               const RunShape& run);

  // The bytes that the largest product needs.
  std::size_t workspace(int threads) const;
  // Adds the products of a forward and backward. `first`: the chunk is the first one.
  void list(std::vector<device::ProductShape>& out, bool first, bool learns_table) const;

  std::size_t rows, columns;
  // weights_first: the first chunk's, which overwrites the sum.
  device::Product logits, input, weights_first, weights_more;
  // The same with B for the table and s x A^T for x. The logits are added to the table's.
  struct OfAdapter {
    device::Product logits, down, b_first, b_more;
    // DoRA with dropout: the gradient of x after dropout, which is not a sum over tiles.
    std::optional<device::Product> input;
  };
  std::optional<OfAdapter> adapter;
};

// This rank's part of a head's table [vocabulary, hidden] and of the bias of its words: the tiles of its virtual
// shards, their places in flat buffers, and their products with chunks of rows.
class HeadTable {
 public:
  HeadTable(std::size_t vocabulary, std::size_t hidden, const RunShape& run);

  // For each shard of this rank: the offsets of the table's rows, in the buffer of the unit that holds them, and of the
  // bias of its words. `biases` is empty if there is no bias.
  void place(std::vector<std::size_t> rows, std::vector<std::size_t> biases);
  // Prepares the products of `rows` rows in chunks of chunk_rows. adapter: the table's; rank 0: it has none.
  void prepare(std::size_t rows, std::size_t chunk_rows, const LowRank& adapter, const RunShape& run);
  // Bytes for the largest product, and for a sum over the rows of a chunk, for each word of a tile.
  std::size_t workspace(int threads) const;
  std::size_t column_workspace() const;

  const TableTiles& tiles() const { return tiles_; }
  std::size_t count() const { return tiles_.count(); }
  std::size_t rows(std::size_t tile) const { return tiles_.rows(tile); }
  std::size_t shard(std::size_t tile) const { return tiles_.shard(tile); }
  std::size_t size(std::size_t tile) const { return tiles_.rows(tile) * hidden_; }
  bool biased() const { return !biases_.empty(); }
  bool learns_rows() const { return !is_frozen(rows_[0]); }
  bool learns_words() const { return biased() && !is_frozen(biases_[0]); }
  const TileProducts& products(std::size_t rows, std::size_t tile) const {
    return products_[rows == chunk_rows_ ? 0 : 1][tiles_.width(tile)];
  }

  // Calls f(products) for each tile, and then for widths that only tiles of other ranks have. Algorithms are chosen for
  // the products listed here, and must not depend on the rank.
  template <typename F>
  void for_listed(std::size_t rows, F&& f) const {
    std::vector<bool> seen(tiles_.widths().size());
    for (std::size_t tile = 0; tile < count(); ++tile) {
      f(products(rows, tile));
      seen[tiles_.width(tile)] = true;
    }
    for (std::size_t width = 0; width < seen.size(); ++width)
      if (!seen[width]) f(products_[rows == chunk_rows_ ? 0 : 1][width]);
  }
  // The number of words reserved for each shard in a vector over words. Every shard begins at a cache line, so that
  // products see the same alignment on every rank.
  std::size_t padded_words() const { return (tiles_.shard_words() + 31) / 32 * 32; }

  // The tile's rows in the holder's buffer, its part of the bias in the head's, its part of a vector with
  // padded_words() words for each shard, and its part of logits or of a matrix of rows, which are dense.
  template <typename V>
  V rows_in(const FlatRange<V>& holder, std::size_t tile) const {
    return holder.sub(begin(tile), size(tile));
  }
  template <typename V>
  V bias_in(const FlatRange<V>& head, std::size_t tile) const {
    return head.sub(biases_[shard(tile)] + tiles_.row_in_shard(tile), rows(tile));
  }
  device::View words_in(device::View words, std::size_t tile) const {
    return words.sub(shard(tile) * padded_words() + tiles_.row_in_shard(tile), rows(tile));
  }
  device::View logits_in(device::View logits, std::size_t tile) const { return logits.sub(own_row(tile), rows(tile)); }
  // one_tile: the matrix has the rows of this tile alone.
  device::View rows_of_sum(device::View sum, std::size_t tile, std::size_t width, bool one_tile) const {
    return sum.sub(one_tile ? 0 : own_row(tile) * width, rows(tile) * width);
  }
  // The tile's logits or their gradients, in memory of their own, for the losses.
  device::LogitTile logit_tile(std::size_t rows, std::size_t tile, device::View logits) const;
  // Adds the contribution of a chunk's logits to the gradient of the bias.
  void add_to_bias(device::Lane&, const Context&, const HeadWorkspace& p, const HeadTile& at,
                   device::ConstView d_logits) const;
  // Calls f(tile, logits) with the place of each tile's logits for a chunk of `rows` rows. The places follow one
  // another; those of scaled logits may be the same.
  template <typename F>
  void for_logits(const Context& c, const HeadWorkspace& p, std::size_t rows, F&& f) const {
    const TileLogits first = p.first_logits(c.workspace);
    const bool together = p.scaled.size < p.logits.size && first.unscaled;
    std::size_t next = 0;
    for (std::size_t tile = 0; tile < count(); ++tile) {
      const std::size_t size = rows * logit_stride(tiles_.rows(tile)), at = std::exchange(next, next + size);
      f(tile, TileLogits{first.logits.sub(together ? 0 : at, size),
                         first.unscaled ? first.unscaled.sub(at, size) : device::View{}});
    }
  }
  // The gradients of a table that another unit holds have gaps: its shards, and its end, are rounded up to complete
  // blocks.
  void zero_gaps(device::Lane&, const GradientRange& gradients) const;

 private:
  std::size_t begin(std::size_t tile) const { return rows_[shard(tile)] + tiles_.row_in_shard(tile) * hidden_; }
  std::size_t own_row(std::size_t tile) const { return shard(tile) * tiles_.shard_words() + tiles_.row_in_shard(tile); }

  std::size_t hidden_, chunk_rows_ = 0;
  TableTiles tiles_;
  std::vector<std::size_t> rows_, biases_;
  // Full chunks come first, then the last one; each has the products of TableTiles::widths().
  std::array<std::vector<TileProducts>, 2> products_;
};

}  // namespace strata::models
