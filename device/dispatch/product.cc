#include "device/ops/products/product.h"

#include <algorithm>
#include <memory>

#include "device/backend.h"
#include "device/operations.h"
#include "device/ops/activation.h"
#include "device/ops/elementwise.h"

namespace strata::device {
namespace {

const ProductShape& checked(const ProductShape& s) {
  STRATA_CHECK(s.m >= 1 && s.n >= 1 && s.k >= 1);
  STRATA_CHECK_LE(s.transpose_a ? s.m : s.k, s.lda);
  STRATA_CHECK_LE(s.transpose_b ? s.k : s.n, s.ldb);
  STRATA_CHECK_LE(s.n, s.ldc);
  STRATA_CHECK(s.out == s.in || s.out == DType::fp32);
  STRATA_CHECK(!s.accumulate || s.epilogue == Epilogue::none);
  STRATA_CHECK(!s.bias || s.epilogue == Epilogue::none || is_gelu(s.epilogue));
  STRATA_CHECK(s.epilogue != Epilogue::sums_a || s.transpose_a);
  STRATA_CHECK(s.epilogue != Epilogue::sums_b || !s.transpose_b);
  return s;
}

// The elements that a matrix of `rows` rows, `row` elements apart, occupies.
std::size_t extent(std::int64_t rows, std::int64_t columns, std::int64_t row) {
  return static_cast<std::size_t>((rows - 1) * row + columns);
}

// The size of the epilogue's second output or input.
std::size_t epilogue_size(const ProductShape& s) {
  switch (s.epilogue) {
    case Epilogue::none:
      return 0;
    case Epilogue::gelu_tanh:
    case Epilogue::gelu_tanh_gradient:
    case Epilogue::gelu_erf:
    case Epilogue::gelu_erf_gradient:
      return extent(s.m, s.n, s.ldc);
    case Epilogue::sums_a:
      return static_cast<std::size_t>(s.m);
    case Epilogue::sums_b:
      return static_cast<std::size_t>(s.n);
  }
  return 0;
}

// For a GPU's plan made by a program without CUDA: it needs the same memory as the real product, and is never run.
class Planned final : public Product::Impl {
 public:
  using Impl::Impl;
  std::size_t workspace_bytes(int) override { return std::size_t{32} << 20; }  // kMatmulWorkspace of device/cuda
  void run(Lane& lane, const Operands&) override { (void)backend(lane.device().kind); }  // this refuses the kind
};

}  // namespace

Product::Product(Device device, const ProductShape& shape) {
  if (device.kind == Kind::cuda && !cuda_backend())
    impl_ = std::make_unique<Planned>(checked(shape));
  else
    impl_ = backend(device.kind).make_product(device, checked(shape));
}
Product::~Product() = default;
Product::Product(Product&&) noexcept = default;
Product& Product::operator=(Product&&) noexcept = default;

const ProductShape& Product::shape() const {
  return impl_->shape;
}

std::size_t Product::workspace_bytes(int threads) const {
  return std::max(impl_->workspace_bytes(threads), impl_->epilogue_workspace());
}

void Product::run(Lane& lane, ConstView a, ConstView b, ConstView bias, View c, View workspace, View epilogue_out,
                  ConstView epilogue_in) const {
  const ProductShape& s = impl_->shape;
  STRATA_CHECK(a.dtype == s.in && b.dtype == s.in && c.dtype == s.out);
  STRATA_CHECK_LE(s.transpose_a ? extent(s.k, s.m, s.lda) : extent(s.m, s.k, s.lda), a.size);
  STRATA_CHECK_LE(s.transpose_b ? extent(s.n, s.k, s.ldb) : extent(s.k, s.n, s.ldb), b.size);
  STRATA_CHECK_LE(extent(s.m, s.n, s.ldc), c.size);
  STRATA_CHECK_EQ(static_cast<bool>(bias), s.bias);
  STRATA_CHECK(!s.bias || (bias.dtype == s.in && bias.size >= static_cast<std::size_t>(s.n)));
  STRATA_CHECK_LE(workspace_bytes(lane.threads()), workspace.bytes());
  const bool reads = is_gelu_gradient(s.epilogue);
  STRATA_CHECK_EQ(static_cast<bool>(epilogue_in), reads);
  STRATA_CHECK_EQ(static_cast<bool>(epilogue_out), s.epilogue != Epilogue::none && !reads);
  if (s.epilogue != Epilogue::none) {
    const ConstView second = reads ? epilogue_in : ConstView(epilogue_out);
    STRATA_CHECK(second.dtype == s.out);
    STRATA_CHECK_LE(epilogue_size(s), second.size);
  }
  impl_->run(lane, {a, b, bias, c, workspace, epilogue_out, epilogue_in});
}

std::size_t Product::Impl::epilogue_workspace() const {
  if (shape.epilogue != Epilogue::sums_a && shape.epilogue != Epilogue::sums_b) return 0;
  return column_sum_workspace(static_cast<std::size_t>(shape.k), epilogue_size(shape));
}

void Product::Impl::run_epilogue(Lane& lane, const Operands& x) const {
  const auto rows = static_cast<std::size_t>(shape.m), stride = static_cast<std::size_t>(shape.ldc);
  const auto summed = static_cast<std::size_t>(shape.k);
  // Contiguous rows, the usual case, are one operation.
  const bool dense = shape.n == shape.ldc;
  const std::size_t parts = dense ? 1 : rows, size = static_cast<std::size_t>(shape.n) * (dense ? rows : 1);
  switch (shape.epilogue) {
    case Epilogue::none:
      return;
    case Epilogue::gelu_tanh:
    case Epilogue::gelu_erf:
    case Epilogue::gelu_tanh_gradient:
    case Epilogue::gelu_erf_gradient: {
      const bool erf = shape.epilogue == Epilogue::gelu_erf || shape.epilogue == Epilogue::gelu_erf_gradient;
      const Activation gelu = erf ? Activation::gelu_erf : Activation::gelu_tanh;
      for (std::size_t i = 0; i < parts; ++i) {
        const View c = x.c.sub(i * stride, size);
        if (is_gelu_gradient(shape.epilogue))
          activation_backward(lane, gelu, c, x.epilogue_in.sub(i * stride, size), c);
        else
          activation_forward(lane, gelu, c, x.epilogue_out.sub(i * stride, size));
      }
      return;
    }
    case Epilogue::sums_a:
    case Epilogue::sums_b: {
      const bool first = shape.epilogue == Epilogue::sums_a;
      const std::size_t columns = epilogue_size(shape);
      column_sum(lane, summed, columns, static_cast<std::size_t>(first ? shape.lda : shape.ldb), first ? x.a : x.b,
                 x.epilogue_out.sub(0, columns), x.workspace);
      return;
    }
  }
}

void matvec(Lane& lane, const MatvecShape& shape, ConstView w, ConstView x, ConstView bias, View y) {
  STRATA_CHECK_LE(shape.out * shape.in, w.size);
  STRATA_CHECK_LE(shape.in, x.size);
  STRATA_CHECK_LE(shape.out, y.size);
  STRATA_CHECK(w.dtype == x.dtype && (y.dtype == x.dtype || y.dtype == DType::fp32));
  STRATA_CHECK(!bias || (bias.size >= shape.out && bias.dtype == x.dtype));
  lane.operations().matvec(lane, shape, w, x, bias, y);
}

}  // namespace strata::device
