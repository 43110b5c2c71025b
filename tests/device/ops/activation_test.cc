#include "device/ops/activation.h"

#include <limits>
#include <numbers>

#include "device/cpu/kernels/tables.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;
using testing::tolerance;

double exact_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_erf(double x) {
  return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
}
double gelu_erf_slope(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
}
double silu(double x) {
  return x / (1 + std::exp(-x));
}

// Finite inputs of every size, and the range where the function bends.
Array inputs(DType dtype, std::size_t size) {
  Array x = Array::random(dtype, size, 1, 6.0f);
  const float special[] = {0.0f, -0.0f, 30.0f, -30.0f, 1e4f, -1e4f, 6e4f, -6e4f, 1e-7f, -1e-7f};
  for (std::size_t i = 0; i < std::size(special) && i < size; ++i) x.set(i, special[i]);
  return x;
}

double gelu_slope(double x) {
  const double h = 1e-5 * std::max(1.0, std::abs(x));
  return (exact_gelu(x + h) - exact_gelu(x - h)) / (2 * h);
}

void expect_elementwise(Activation function, double (*f)(double), double (*slope)(double)) {
  for (const DType dtype : kDTypes)
    for (const std::size_t n : {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{2 * 32768 + 19}}) {
      Array x = inputs(dtype, n), dy = Array::random(dtype, n, 2);
      const auto run = [&](int threads) {
        Array y(dtype, n), dx = dy;
        in_lane(threads, [&](Lane& lane) {
          activation_forward(lane, function, x.view(), y.view());
          activation_backward(lane, function, dx.view(), x.view(), dx.view());  // in place
        });
        return std::vector<Array>{y, dx};
      };
      testing::expect_same_bits_on_any_threads(run);
      const auto out = run(1);
      for (std::size_t i = 0; i < n; ++i) {
        const double v = x[i], d = dy[i] * slope(v);
        // The exponent's argument is up to 30: its fp32 rounding counts relative to the result's size.
        ASSERT_NEAR(out[0][i], f(v), tolerance(dtype, f(v), std::abs(v))) << name_of(dtype) << " x = " << v;
        ASSERT_NEAR(out[1][i], d, tolerance(dtype, d, 2.0)) << name_of(dtype) << " x = " << v;
      }
    }
}

TEST(Gelu, ForwardAndBackward) {
  expect_elementwise(Activation::gelu_tanh, exact_gelu, gelu_slope);
}

TEST(Gelu, HandlesLimitsAndNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  Array x(DType::fp32, 5), y(DType::fp32, 5), dx(DType::fp32, 5);
  const float values[] = {inf, std::nanf(""), 3e38f, -3e38f, -0.0f};
  for (std::size_t i = 0; i < 5; ++i) x.set(i, values[i]), dx.set(i, 1.0f);
  in_lane(1, [&](Lane& lane) {
    activation_forward(lane, Activation::gelu_tanh, x.view(), y.view());
    activation_backward(lane, Activation::gelu_tanh, dx.view(), x.view(), dx.view());
  });
  EXPECT_EQ(y[0], inf);
  EXPECT_TRUE(std::isnan(y[1]) && std::isnan(dx[1]));
  EXPECT_EQ(y[2], 3e38f);
  EXPECT_EQ(y[3], 0.0f);
  EXPECT_TRUE(y[4] == 0.0f && std::signbit(y[4]));
  EXPECT_EQ(dx[0], 1.0f);
  EXPECT_EQ(dx[2], 1.0f);
  EXPECT_EQ(dx[3], 0.0f);
  EXPECT_EQ(dx[4], 0.5f);
}

TEST(GeluErf, ForwardAndBackward) {
  expect_elementwise(Activation::gelu_erf, gelu_erf, gelu_erf_slope);
}

// Below 0, too, it is correct to a few units in the last place, until e^(-x^2 / 2) has an error of its own: that of its
// argument, half a unit of 50.
TEST(GeluErf, DoesNotCancel) {
  const std::size_t n = 4000;
  Array x(DType::fp32, n), y(DType::fp32, n);
  for (std::size_t i = 0; i < n; ++i) x.set(i, -10.0f * static_cast<float>(i + 1) / static_cast<float>(n));
  in_lane(1, [&](Lane& lane) { activation_forward(lane, Activation::gelu_erf, x.view(), y.view()); });
  for (std::size_t i = 0; i < n; ++i) {
    const double v = x[i], want = gelu_erf(v);
    ASSERT_NEAR(y[i], want, std::abs(want) * (4 + v * v) * 0x1p-23) << v;
  }
}

TEST(GeluErf, HandlesLimitsAndNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  const float values[] = {inf, std::nanf(""), 3e38f, -3e38f, -0.0f, -inf, 1e-40f, -1e-40f};
  const std::size_t n = std::size(values);
  Array x(DType::fp32, n), y(DType::fp32, n), dx(DType::fp32, n);
  for (std::size_t i = 0; i < n; ++i) x.set(i, values[i]), dx.set(i, 1.0f);
  in_lane(1, [&](Lane& lane) {
    activation_forward(lane, Activation::gelu_erf, x.view(), y.view());
    activation_backward(lane, Activation::gelu_erf, dx.view(), x.view(), dx.view());
  });
  EXPECT_EQ(y[0], inf);
  EXPECT_TRUE(std::isnan(y[1]) && std::isnan(dx[1]));
  EXPECT_EQ(y[2], 3e38f);
  EXPECT_EQ(y[3], 0.0f);
  EXPECT_TRUE(y[4] == 0.0f && std::signbit(y[4]));
  EXPECT_EQ(y[5], 0.0f);
  const float slopes[] = {1, 0, 1, 0, 0.5f, 0, 0.5f, 0.5f};
  for (const std::size_t i : {0, 2, 3, 4, 5, 6, 7}) EXPECT_NEAR(dx[i], slopes[i], 1e-7) << values[i];
}

TEST(TanhAndRelu, ForwardAndBackward) {
  constexpr std::size_t kSize = 40'037;
  for (const DType dtype : kDTypes) {
    Array x = Array::random(dtype, kSize, 1, 4), dy = Array::random(dtype, kSize, 2), y(dtype, kSize), dx(dtype, kSize);
    in_lane(3, [&](Lane& lane) {
      activation_forward(lane, Activation::tanh, x.view(), y.view());
      activation_backward(lane, Activation::tanh, dy.view(), y.view(), dx.view());
    });
    for (std::size_t i = 0; i < kSize; ++i) {
      ASSERT_NEAR(y[i], std::tanh(static_cast<double>(x[i])), testing::tolerance(dtype, y[i], 1));
      const double slope = dy[i] * (1 - static_cast<double>(y[i]) * static_cast<double>(y[i]));
      ASSERT_NEAR(dx[i], slope, testing::tolerance(dtype, slope, 1));
    }
    in_lane(3, [&](Lane& lane) {
      activation_forward(lane, Activation::relu, x.view(), y.view());
      activation_backward(lane, Activation::relu, dy.view(), y.view(), dx.view());
    });
    for (std::size_t i = 0; i < kSize; ++i) {
      ASSERT_EQ(y[i], x[i] > 0 ? x[i] : 0);
      ASSERT_EQ(dx[i], x[i] > 0 ? dy[i] : 0);
    }
  }
}

double silu_slope(double x) {
  const double h = 1e-5;
  return (silu(x + h) - silu(x - h)) / (2 * h);
}

// Rows of gates and gated values: y = f(gate) * up.
void expect_gated(Gate function, double (*f)(double), double (*slope)(double)) {
  for (const DType dtype : kDTypes)
    for (const std::size_t width : {std::size_t{1}, std::size_t{16}, std::size_t{37}, std::size_t{9001}}) {
      const std::size_t rows = 7;
      Array gate_up = Array::random(dtype, 2 * rows * width, 1, 5.0f), dy = Array::random(dtype, rows * width, 2);
      const auto run = [&](int threads) {
        Array y(dtype, rows * width), d = gate_up;
        in_lane(threads, [&](Lane& lane) {
          gated_forward(lane, function, rows, width, gate_up.view(), y.view());
          gated_backward(lane, function, rows, width, dy.view(), d.view(), d.view());  // in place
        });
        return std::vector<Array>{y, d};
      };
      testing::expect_same_bits_on_any_threads(run);
      const auto out = run(1);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = 0; i < width; ++i) {
          const std::size_t at = r * width + i, gate = 2 * r * width + i, up = gate + width;
          const double g = gate_up[gate], u = gate_up[up], d = dy[at], d_gate = d * u * slope(g);
          ASSERT_NEAR(out[0][at], f(g) * u, tolerance(dtype, f(g) * u, std::abs(g * u))) << name_of(dtype);
          ASSERT_NEAR(out[1][gate], d_gate, tolerance(dtype, d_gate, 5.0)) << name_of(dtype);
          ASSERT_NEAR(out[1][up], d * f(g), tolerance(dtype, d * f(g), 5.0)) << name_of(dtype);
        }
    }
}

TEST(Swiglu, ForwardAndBackward) {
  expect_gated(Gate::silu, silu, silu_slope);
}

TEST(Geglu, ForwardAndBackward) {
  expect_gated(Gate::gelu_erf, gelu_erf, gelu_erf_slope);
}

TEST(ActivationKernels, SameBitsOnBothInstructionSets) {
  const std::size_t n = 4096 + 13;
  testing::expect_same_bits_on_both_isas(
      cpu::avx2::activation_kernels_table, cpu::avx512::activation_kernels_table, [&](const cpu::ActivationKernels& k) {
        std::vector<Array> out;
        for (int t = 0; t < 3; ++t) {
          const Array x = inputs(kDTypes[t], 2 * n), dy = Array::random(kDTypes[t], n, 2);
          Array y(kDTypes[t], n), dx(kDTypes[t], n), s(kDTypes[t], n), ds(kDTypes[t], 2 * n);
          Array e(kDTypes[t], n), de(kDTypes[t], n), g(kDTypes[t], n), dg(kDTypes[t], 2 * n);
          k.gated_forward[1][t](x.data(), g.data(), n);
          k.gated_backward[1][t](dy.data(), x.data(), dg.data(), n);
          k.forward[1][t](x.data(), e.data(), n);
          k.backward[1][t](dy.data(), x.data(), de.data(), n);
          k.forward[0][t](x.data(), y.data(), n);
          k.backward[0][t](dy.data(), x.data(), dx.data(), n);
          k.gated_forward[0][t](x.data(), s.data(), n);
          k.gated_backward[0][t](dy.data(), x.data(), ds.data(), n);
          out.insert(out.end(), {y, dx, s, ds, e, de, g, dg});
        }
        return out;
      });
}

}  // namespace
}  // namespace strata::device
