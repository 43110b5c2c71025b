#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/lane.h"
#include "device/numeric/dtype.h"
#include "device/view.h"

namespace strata::device {

// An operation fused with the product, on results that are still in cache. It has a second output or input of C's type.
enum class Epilogue : std::uint8_t {
  none,
  gelu_tanh,           // out = gelu(C), with C's shape and leading dimension
  gelu_tanh_gradient,  // C = (op(A) op(B)) gelu'(in), where `in` is gelu's input, of C's shape and leading dimension
  gelu_erf,            // the same two for the exact gelu
  gelu_erf_gradient,
  sums_a,  // out[m] = the sums of op(A) over k, rounded once; A is transposed
  sums_b,  // out[n] = the same for op(B); B is not transposed
};
// Whether the epilogue writes gelu(C).
constexpr bool is_gelu(Epilogue e) {
  return e == Epilogue::gelu_tanh || e == Epilogue::gelu_erf;
}
// Whether it reads a gelu's input.
constexpr bool is_gelu_gradient(Epilogue e) {
  return e == Epilogue::gelu_tanh_gradient || e == Epilogue::gelu_erf_gradient;
}

// C[m, n] = op(A)[m, k] op(B)[k, n] (+ bias[n]) (+ C), row-major; a transposed operand is stored as [k, m] or [n, k].
// Leading dimensions count elements between stored rows. Sums are fp32. C is rounded once, or once more by an epilogue
// that is not fused. fp16 operands are multiplied in fp32. A bias can be combined with no epilogue or with a gelu.
struct ProductShape {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda, ldb, ldc;
  DType in = DType::fp32;   // A, B and the bias
  DType out = DType::fp32;  // C; `in`, or fp32
  bool bias = false;
  bool accumulate = false;  // C += ...; without epilogue
  Epilogue epilogue = Epilogue::none;
  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

// A product of one shape, created when the step is planned (oneDNN, cuBLASLt). It is cut into tiles whose edges depend
// only on the shape and the kind of processor. One thread computes each tile, so the bits do not depend on the number
// of threads. A Product holds the state that each thread of a lane needs, so all its work runs in one lane at a time.
// Throws Error{failed} if the library refuses the shape.
class Product {
 public:
  Product(Device device, const ProductShape& shape);
  ~Product();
  Product(Product&&) noexcept;
  Product& operator=(Product&&) noexcept;

  const ProductShape& shape() const;
  // Bytes of scratch that run() needs in a lane of `threads` threads.
  std::size_t workspace_bytes(int threads) const;
  // `workspace` has at least workspace_bytes(lane.threads()) and belongs to this call until it has run.
  void run(Lane& lane, ConstView a, ConstView b, ConstView bias, View c, View workspace, View epilogue_out = {},
           ConstView epilogue_in = {}) const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// A matrix [out, in], row-major; input_major: stored as [in, out].
struct MatvecShape {
  std::size_t out, in;
  bool input_major = false;
};

// y[out] = W x (+ bias), in fp32, rounded once into y (x's dtype, or fp32): the product for a single row, bound by
// reading W once. Each sum has the same order for any number of threads.
void matvec(Lane&, const MatvecShape&, ConstView w, ConstView x, ConstView bias, View y);

}  // namespace strata::device
