#pragma once
#include <cstddef>

#include "device/ops/products/product.h"

namespace strata::device {

// A product of one shape on one kind of device. The operands were checked.
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

  // The epilogue as an operation of its own, once the product without it is queued. What lies between the rows of C
  // stays as it is. Its scratch is part of Product::workspace_bytes().
  void run_epilogue(Lane& lane, const Operands& x) const;
  std::size_t epilogue_workspace() const;

  const ProductShape shape;
};

}  // namespace strata::device
