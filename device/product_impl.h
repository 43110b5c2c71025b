#pragma once
#include <cstddef>

#include "device/ops/products/product.h"

namespace strata::device {

// A product of one shape on one kind of device. Its operands have been checked.
class Product::Impl {
 public:
  struct Operands {
    ConstView a, b, bias;
    View c, workspace, epilogue_out;
    ConstView epilogue_in;
  };

  explicit Impl(const ProductShape& product) : shape(product) {}
  virtual ~Impl() = default;

  virtual std::size_t workspace_bytes(int threads) = 0;
  virtual void run(Lane& lane, const Operands& x) = 0;

  // Runs the epilogue as a separate operation, after the product without it is queued. Elements between the rows of C
  // do not change. Product::workspace_bytes() includes its scratch.
  void run_epilogue(Lane& lane, const Operands& x) const;
  std::size_t epilogue_workspace() const;

  const ProductShape shape;
};

}  // namespace strata::device
