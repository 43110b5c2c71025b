#include "device/ops/dora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "device/ops/elementwise.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;

// Compares with double precision, for numbers of outputs and inputs that no vector divides. The last output is all
// zeros.
TEST(Dora, ScalesAreMagnitudesOverNorms) {
  for (const DType dtype : kDTypes)
    for (const bool major : {false, true}) {
      const DoraShape shape{70, 37, 3, major, 0.5f};
      Array w = Array::random(dtype, shape.out * shape.in, 1), a = Array::random(dtype, shape.rank * shape.in, 2);
      Array b = Array::random(dtype, shape.out * shape.rank, 3), m = Array::random(dtype, shape.out, 4);
      const auto at = [&](std::size_t o, std::size_t i) { return major ? i * shape.out + o : o * shape.in + i; };
      for (std::size_t i = 0; i < shape.in; ++i) w.set(at(69, i), 0);
      for (std::size_t r = 0; r < shape.rank; ++r) b.set(69 * shape.rank + r, 0);
      Array norms(DType::fp32, shape.out), scales(DType::fp32, shape.out);
      Array workspace(DType::fp32, dora_workspace(shape) / sizeof(float));
      in_lane(3, [&](Lane& lane) {
        dora_squares(lane, shape, w.view(), a.view(), b.view(), norms.view(), workspace.view());
        dora_scales(lane, norms.view(), m.view(), norms.view(), scales.view());
      });
      for (std::size_t o = 0; o < shape.out; ++o) {
        double sum = 0;
        for (std::size_t i = 0; i < shape.in; ++i) {
          double v = w[at(o, i)];
          for (std::size_t r = 0; r < shape.rank; ++r) v += 0.5 * b[o * shape.rank + r] * a[r * shape.in + i];
          sum += v * v;
        }
        Array rounded(dtype, 1);
        rounded.set(0, norms[o]);
        ASSERT_EQ(rounded[0], norms[o]) << "rounded as magnitudes are";
        const double tolerance = dtype == DType::fp32 ? 1e-5 : dtype == DType::bf16 ? 4e-3 : 5e-4;
        ASSERT_NEAR(norms[o], std::sqrt(sum), tolerance * (1 + std::sqrt(sum))) << o;
        ASSERT_NEAR(scales[o], sum > 0 ? m[o] / norms[o] : 0, 1e-5 * (1 + std::abs(m[o]))) << o;
      }
    }
}

TEST(Dora, ColumnsAreScaledAndMultiplied) {
  constexpr std::size_t kRows = 45, kColumns = 70, kStride = 75, kWideStride = 83;
  for (const DType dtype : kDTypes) {
    Array x = Array::random(dtype, kRows * kStride, 1), y = Array::random(dtype, kRows * kStride, 2);
    Array bias = Array::random(dtype, kColumns, 3), scales = Array::random(DType::fp32, kColumns, 4);
    for (std::size_t c = 0; c < kColumns; ++c) scales.set(c, std::abs(scales[c]) + 0.1f);
    scales.set(5, 0);
    Array out = y, plain = y, sum_of = y, dots(dtype, kColumns), exact_dots(DType::fp32, kColumns);
    Array wide(DType::fp32, kRows * kWideStride);
    for (std::size_t i = 0; i < kRows * kStride; ++i) wide.set(i / kStride * kWideStride + i % kStride, y[i]);
    Array workspace(DType::fp32, column_sum_workspace(kRows, kColumns) / sizeof(float));
    in_lane(3, [&](Lane& lane) {
      scale_columns(lane, kRows, kColumns, kStride, x.view(), scales.view(), bias.view(), out.view());
      scale_columns(lane, kRows, kColumns, kStride, x.view(), {}, {}, plain.view());
      scale_columns(lane, kRows, kColumns, kStride, x.view(), scales.view(), {}, sum_of.view(), sum_of.view(), -1);
      column_dot(lane, kRows, kColumns, kStride, x.view(), kStride, y.view(), scales.view(), dots.view(),
                 workspace.view());
      column_dot(lane, kRows, kColumns, kStride, x.view(), kWideStride, wide.view(), scales.view(), exact_dots.view(),
                 workspace.view());
    });
    const double tolerance = dtype == DType::fp32 ? 1e-5 : dtype == DType::bf16 ? 8e-3 : 1e-3;
    for (std::size_t c = 0; c < kColumns; ++c) {
      double sum = 0;
      for (std::size_t r = 0; r < kRows; ++r) {
        const double value = double{x[r * kStride + c]} * scales[c] + bias[c];
        ASSERT_NEAR(out[r * kStride + c], value, tolerance * (1 + std::abs(value)));
        ASSERT_EQ(plain[r * kStride + c], x[r * kStride + c]);
        const double less = double{x[r * kStride + c]} * scales[c] - y[r * kStride + c];
        ASSERT_NEAR(sum_of[r * kStride + c], less, tolerance * (1 + std::abs(less)));
        sum += double{x[r * kStride + c]} * y[r * kStride + c];
      }
      const double dot = scales[c] > 0 ? sum / scales[c] : 0;
      ASSERT_NEAR(dots[c], dot, tolerance * (1 + std::abs(dot)));
      ASSERT_NEAR(exact_dots[c], dot, 1e-5 * (1 + std::abs(dot))) << "not rounded";
    }
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t c = kColumns; c < kStride; ++c)
        ASSERT_EQ(out[r * kStride + c], y[r * kStride + c]) << "outside the columns";
  }
}

}  // namespace
}  // namespace strata::device
