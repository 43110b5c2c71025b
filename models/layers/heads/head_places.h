#pragma once
#include <cstddef>

#include "device/numeric/dtype.h"
#include "models/layers/slots.h"

namespace strata::models {

// The places of a head's values in the workspace of its call.
struct HeadPlaces {
  struct Shape {
    std::size_t rows, chunk_rows, hidden;
    device::DType dtype;
    std::size_t scratch_bytes;
    // The sum of the strides of tiles whose logits exist at once; the rows of tiles whose sums of gradients do.
    std::size_t logit_stride, table_rows;
    std::size_t words, most_words;  // with a bias: all, and the most of a tile
    bool learns, learns_table, learns_words;
    bool picks, transforms, enters, centred;  // rows, a transform, a norm before it, a norm without a bias
    std::size_t shards;                       // of the vocabulary, of this rank; 0: it is not cut
    bool shared;                              // by ranks, which add the gradients of the norm's output
  };
  HeadPlaces() = default;
  explicit HeadPlaces(const Shape& s);

  // The rows that enter the loss; the output of the norm before the transform; the transform's inner and final values.
  Slot picked, entered, inner, active;
  Slot entry_mean, entry_rstd;
  Slot no_bias;  // for norms without a bias
  Slot scratch, mean, rstd, losses, statistics, normed, d_normed, d_normed_rounded, logits, d_weight;
  // The logit biases, and the sum of their gradients: if the table is gathered by tiles, the unit's own parameters are
  // not available in between.
  Slot logit_bias, d_logit_bias, chunk_bias;
  // For one chunk of rows, by virtual shard: the gradients of the norm's output, and the statistics.
  Slot d_normed_of_shards, of_shards;
  std::size_t bytes = 0;
};

}  // namespace strata::models
