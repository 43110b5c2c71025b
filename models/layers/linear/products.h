#pragma once
#include <cstddef>

#include "device/ops/products/product.h"

namespace strata::models {

// Helpers that the products of a linear layer, of its adapters and of DoRA share.

// The matrix that begins at `column`.
template <typename AnyView>
AnyView columns_from(AnyView matrix, std::size_t column) {
  return matrix.sub(column, matrix.size - column);
}

inline double flops_of(const device::Product& product) {
  const device::ProductShape& s = product.shape();
  return 2 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

}  // namespace strata::models
