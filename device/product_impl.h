#pragma once
#include <cstddef>

#include "device/ops/product.h"

namespace strata::device {

// A product of one shape on one kind of device. The operands were checked.
class Product::Impl {
 public:
  struct Operands {
    ConstView a, b, bias;
    View c, workspace, activated;  // activated: the epilogue's output, or empty
  };

  explicit Impl(const ProductShape& product) : shape(product) {}
  virtual ~Impl() = default;

  virtual std::size_t workspace_bytes(int threads) = 0;
  virtual void run(Lane& lane, const Operands& x) = 0;

  const ProductShape shape;
};

}  // namespace strata::device
