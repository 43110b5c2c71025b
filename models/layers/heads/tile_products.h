#pragma once
#include <cstddef>

#include "device/ops/products/product.h"
#include "models/model.h"

namespace strata::models {

// The rows in each chunk of a head's `tokens` rows, chosen so that the fp32 logits of a chunk stay small compared to a
// model.
std::size_t chunk_rows(std::size_t tokens, std::size_t vocabulary, device::Kind kind);

// The stride between rows of a tile's logits, in elements. It avoids powers of two, with which all rows would share a
// few cache sets.
inline std::size_t logit_stride(std::size_t columns) {
  return (columns + 15) / 16 * 16 + 16;
}

// The products of a chunk of a head's rows with a tile of its table. Gradients replace the fp32 logits in their rows.
// The input's gradient is summed over tiles, the table's over chunks, in fp32.
struct TileProducts {
  TileProducts(std::size_t rows, std::size_t columns, std::size_t hidden, bool bias, const RunShape& run);

  // In bytes, for the largest of them.
  std::size_t workspace(int threads) const;

  std::size_t rows, columns;
  // weights_first: for the first chunk; it overwrites the sum.
  device::Product logits, input, weights_first, weights_more;
};

}  // namespace strata::models
