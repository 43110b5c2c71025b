#pragma once
#include <cstddef>

#include "device/ops/products/product.h"
#include "models/model.h"

namespace strata::models {

// Rows of the chunks that a head takes `tokens` rows in, so that the fp32 logits of a chunk stay small beside a model.
std::size_t chunk_rows(std::size_t tokens, std::size_t vocabulary, device::Kind kind);

// Elements between rows of a tile's logits: off a power of two, on which all rows would share a few cache sets.
inline std::size_t logit_stride(std::size_t columns) {
  return (columns + 15) / 16 * 16 + 16;
}

// The products of a chunk of a head's rows with a tile of its table. Gradients lie in the rows of the fp32 logits that
// they replace. The gradient of the input is summed over tiles, that of the table over chunks, in fp32.
struct TileProducts {
  TileProducts(std::size_t rows, std::size_t columns, std::size_t hidden, bool bias, const RunShape& run);

  // Bytes, of the largest of them.
  std::size_t workspace(int threads) const;

  std::size_t columns;
  // weights_first: of the first chunk, in place of what the sum holds.
  device::Product logits, input, weights_first, weights_more;
};

}  // namespace strata::models
