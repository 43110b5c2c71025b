#include "device/ops/product.h"

#include "device/backend.h"

namespace strata::device {
namespace {

const ProductShape& checked(const ProductShape& s) {
  STRATA_CHECK(s.m >= 1 && s.n >= 1 && s.k >= 1);
  STRATA_CHECK_LE(s.transpose_a ? s.m : s.k, s.lda);
  STRATA_CHECK_LE(s.transpose_b ? s.k : s.n, s.ldb);
  STRATA_CHECK_LE(s.n, s.ldc);
  STRATA_CHECK(s.out == s.in || s.out == DType::fp32);
  STRATA_CHECK(!s.accumulate || s.out == DType::fp32);
  return s;
}

// What a matrix of `rows` rows, `row` elements apart, occupies.
std::size_t extent(std::int64_t rows, std::int64_t columns, std::int64_t row) {
  return static_cast<std::size_t>((rows - 1) * row + columns);
}

}  // namespace

Product::Product(Device device, const ProductShape& shape)
    : impl_(backend(device.kind).make_product(device, checked(shape))) {}
Product::~Product() = default;
Product::Product(Product&&) noexcept = default;
Product& Product::operator=(Product&&) noexcept = default;

const ProductShape& Product::shape() const {
  return impl_->shape;
}

std::size_t Product::workspace_bytes(int threads) const {
  return impl_->workspace_bytes(threads);
}

void Product::run(Lane& lane, ConstView a, ConstView b, ConstView bias, View c, View workspace, Epilogue epilogue,
                  View epilogue_out) const {
  const ProductShape& s = impl_->shape;
  STRATA_CHECK(a.dtype == s.in && b.dtype == s.in && c.dtype == s.out);
  STRATA_CHECK_LE(s.transpose_a ? extent(s.k, s.m, s.lda) : extent(s.m, s.k, s.lda), a.size);
  STRATA_CHECK_LE(s.transpose_b ? extent(s.n, s.k, s.ldb) : extent(s.k, s.n, s.ldb), b.size);
  STRATA_CHECK_LE(extent(s.m, s.n, s.ldc), c.size);
  STRATA_CHECK_EQ(static_cast<bool>(bias), s.bias);
  STRATA_CHECK(!s.bias || (bias.dtype == s.in && bias.size >= static_cast<std::size_t>(s.n)));
  STRATA_CHECK_LE(workspace_bytes(lane.threads()), workspace.bytes());
  STRATA_CHECK_EQ(static_cast<bool>(epilogue_out), epilogue == Epilogue::gelu_tanh);
  STRATA_CHECK(!epilogue_out || (epilogue_out.dtype == s.out && epilogue_out.size >= extent(s.m, s.n, s.ldc)));
  impl_->run(lane, {a, b, bias, c, workspace, epilogue_out});
}

}  // namespace strata::device
