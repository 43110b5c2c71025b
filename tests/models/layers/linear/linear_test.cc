#include "models/layers/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "tests/device/arrays.h"
#include "tests/models/reference.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

using device::DType;
using device::testing::Array;

constexpr std::size_t kRows = 37;

struct LinearCase {
  std::string name;
  std::size_t in;
  std::vector<std::size_t> outs;
  bool aligned;  // every tensor starts at a multiple of 256 elements, as in a unit; otherwise without gaps
  bool bias, input_major;
  DType dtype;
  int threads = 1;
};

void PrintTo(const LinearCase& c, std::ostream* out) {
  *out << c.name << (c.bias ? ", bias" : "") << (c.input_major ? ", [in, out]" : ", [out, in]") << ", "
       << name_of(c.dtype);
}

double reference(Gelu gelu, double x) {
  return gelu == Gelu::erf ? testing::gelu_erf(x) : testing::gelu_tanh(x);
}

class LinearTest : public ::testing::TestWithParam<LinearCase> {
 protected:
  void TearDown() override { EXPECT_TRUE(scratch_.guard_is_whole()); }

  static Linear::Spec place(const LinearCase& c, std::size_t& flat) {
    Linear::Spec spec{kRows, c.in, {}, c.bias, c.input_major, c.dtype};
    const auto next = [&](std::size_t n) {
      const std::size_t at = flat;
      flat += n;
      if (c.aligned) flat = (flat + 255) / 256 * 256;
      return at;
    };
    for (const std::size_t out : c.outs) spec.tensors.push_back({out, next(out * c.in)});
    if (c.bias)
      for (Linear::Tensor& tensor : spec.tensors) tensor.bias = next(tensor.out);
    return spec;
  }

  // Calls f(tensor, its first column).
  template <typename F>
  void for_tensors(F&& f) const {
    std::size_t column = 0;
    for (const Linear::Tensor& tensor : spec_.tensors) {
      f(tensor, column);
      column += tensor.out;
    }
  }
  std::size_t weight_index(const Linear::Tensor& tensor, std::size_t o, std::size_t i) const {
    return tensor.weight + (c_.input_major ? i * tensor.out + o : o * c_.in + i);
  }
  void expect_near(double value, double reference, double scale, std::size_t terms, const std::string& what) {
    // Allows one rounding to the dtype, and one fp32 rounding per term of the sum.
    EXPECT_NEAR(value, reference, device::testing::tolerance(c_.dtype, reference, scale, terms + 1.0)) << what;
  }

  const LinearCase& c_ = GetParam();
  std::size_t flat_ = 0;
  const Linear::Spec spec_ = place(c_, flat_);
  const Linear linear_{spec_};
  const std::size_t out_ = linear_.out();
  Array parameters_ = Array::random(c_.dtype, flat_, 1);
  Array x_ = Array::random(c_.dtype, kRows* c_.in, 2);
  Array dy_ = Array::random(c_.dtype, kRows* out_, 3);
  testing::Buffer scratch_{linear_.scratch_bytes(c_.threads) / sizeof(float), DType::fp32};
};

TEST_P(LinearTest, Forward) {
  Array y(c_.dtype, kRows * out_);
  device::testing::in_lane(c_.threads, [&](device::Lane& lane) {
    linear_.forward(lane, {parameters_.view()}, x_.view(), y.view(), scratch_.view());
  });
  for_tensors([&](const Linear::Tensor& tensor, std::size_t column) {
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t o = 0; o < tensor.out; ++o) {
        double value = c_.bias ? parameters_[tensor.bias + o] : 0, scale = std::abs(value);
        for (std::size_t i = 0; i < c_.in; ++i) {
          const double term = double{x_[r * c_.in + i]} * parameters_[weight_index(tensor, o, i)];
          value += term;
          scale += std::abs(term);
        }
        expect_near(y[r * out_ + column + o], value, scale, c_.in, "y");
      }
  });
}

TEST_P(LinearTest, GeluAfterTheLayerSeesTheOutput) {
  for (const Gelu gelu : {Gelu::tanh, Gelu::erf}) {
    Linear::Spec spec = spec_;
    spec.gelu_after = gelu;
    const Linear linear(spec);
    Array y(c_.dtype, kRows * out_), active(c_.dtype, kRows * out_);
    device::testing::in_lane(c_.threads, [&](device::Lane& lane) {
      linear.forward(lane, {parameters_.view()}, x_.view(), y.view(), scratch_.view(), active.view());
    });
    for (std::size_t i = 0; i < y.size(); ++i)
      expect_near(active[i], reference(gelu, y[i]), std::abs(y[i]), 8, "gelu(y)");
  }
}

// A call of one row takes another code path, with gelu as a separate operation.
TEST_P(LinearTest, GeluAfterOneRow) {
  for (const Gelu gelu : {Gelu::tanh, Gelu::erf}) {
    Linear::Spec spec = spec_;
    spec.rows = 1;
    spec.gelu_after = gelu;
    const Linear linear(spec);
    Array y(c_.dtype, out_), active(c_.dtype, out_);
    device::testing::in_lane(c_.threads, [&](device::Lane& lane) {
      linear.forward(lane, {parameters_.view()}, x_.view().sub(0, c_.in), y.view(), scratch_.view(), active.view());
    });
    for (std::size_t i = 0; i < y.size(); ++i)
      expect_near(active[i], reference(gelu, y[i]), std::abs(y[i]), 8, "gelu(y)");
  }
}

TEST_P(LinearTest, BackwardInput) {
  Array dx(c_.dtype, kRows * c_.in);
  device::testing::in_lane(c_.threads, [&](device::Lane& lane) {
    linear_.backward_input(lane, {parameters_.view()}, dy_.view(), dx.view(), scratch_.view());
  });
  for (std::size_t r = 0; r < kRows; ++r)
    for (std::size_t i = 0; i < c_.in; ++i) {
      double value = 0, scale = 0;
      for_tensors([&](const Linear::Tensor& tensor, std::size_t column) {
        for (std::size_t o = 0; o < tensor.out; ++o) {
          const double term = double{dy_[r * out_ + column + o]} * parameters_[weight_index(tensor, o, i)];
          value += term;
          scale += std::abs(term);
        }
      });
      expect_near(dx[r * c_.in + i], value, scale, out_, "dx");
    }
}

// The slope of gelu (at most 1.13) in double precision. fp32's differs by a few roundings.
TEST_P(LinearTest, GradientPassesThroughAGeluBeforeTheLayer) {
  for (const Gelu gelu : {Gelu::tanh, Gelu::erf}) {
    Linear::Spec spec = spec_;
    spec.gelu_before = gelu;
    const Linear linear(spec);
    Array inactive = Array::random(c_.dtype, kRows * c_.in, 4);
    Array plain(c_.dtype, kRows * c_.in), dx = plain;
    device::testing::in_lane(c_.threads, [&](device::Lane& lane) {
      linear_.backward_input(lane, {parameters_.view()}, dy_.view(), plain.view(), scratch_.view());
      linear.backward_input(lane, {parameters_.view()}, dy_.view(), dx.view(), scratch_.view(), inactive.view());
    });
    constexpr double kStep = 1e-5;
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const double x = inactive[i];
      const double slope = (reference(gelu, x + kStep) - reference(gelu, x - kStep)) / (2 * kStep);
      expect_near(dx[i], plain[i] * slope, 2 * std::abs(plain[i]), 16, "dx gelu'");
    }
  }
}

TEST_P(LinearTest, BackwardParameters) {
  Array gradients(c_.dtype, flat_);
  std::memset(gradients.data(), 0xff, flat_ * size_of(c_.dtype));
  device::testing::in_lane(c_.threads, [&](device::Lane& lane) {
    linear_.backward_parameters(lane, x_.view(), dy_.view(), {gradients.view()}, scratch_.view());
  });
  std::vector<bool> is_parameter(flat_);
  const auto expect_sum = [&](std::size_t at, const std::string& what, auto&& term_of) {
    double value = 0, scale = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      value += term_of(r);
      scale += std::abs(term_of(r));
    }
    expect_near(gradients[at], value, scale, kRows, what);
    is_parameter[at] = true;
  };
  for_tensors([&](const Linear::Tensor& tensor, std::size_t column) {
    for (std::size_t o = 0; o < tensor.out; ++o) {
      const auto dy = [&](std::size_t r) { return double{dy_[r * out_ + column + o]}; };
      for (std::size_t i = 0; i < c_.in; ++i)
        expect_sum(weight_index(tensor, o, i), "dW", [&](std::size_t r) { return dy(r) * x_[r * c_.in + i]; });
      if (c_.bias) expect_sum(tensor.bias + o, "db", dy);
    }
  });
  for (std::size_t i = 0; i < flat_; ++i) {
    if (is_parameter[i]) continue;
    EXPECT_TRUE(std::isnan(gradients[i])) << "written between parameters, at " << i;
  }
}

TEST_P(LinearTest, ListsTheProductsOfAForwardAndBackward) {
  std::vector<device::ProductShape> products;
  linear_.list_products(products);
  double work = 0;
  for (const device::ProductShape& p : products) work += static_cast<double>(p.m * p.n * p.k);
  EXPECT_EQ(work, 3.0 * static_cast<double>(kRows * c_.in * out_));
}

std::vector<LinearCase> cases() {
  std::vector<LinearCase> out;
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const bool bias : {false, true})
      for (const bool input_major : {false, true}) {
        out.push_back({"one", 24, {40}, true, bias, input_major, dtype});
        out.push_back({"one, more threads", 24, {40}, true, bias, input_major, dtype, 3});
        out.push_back({"contiguous", 32, {40, 24, 24}, false, bias, input_major, dtype});
        // The layout of a unit: no gap after q, and one after k, after v, and after every bias.
        out.push_back({"aligned", 24, {32, 11, 13}, true, bias, input_major, dtype, 2});
        out.push_back({"aligned without gaps", 32, {32, 8, 16}, true, bias, input_major, dtype});
      }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Layouts, LinearTest, ::testing::ValuesIn(cases()));

// The gap decides how many products there are, so the cases above do cover both ways.
TEST(LinearGroupsTest, NeighboursWithoutAGapAreOneProduct) {
  const auto products = [](std::size_t second, bool input_major) {
    std::vector<device::ProductShape> out;
    Linear({8, 16, {{16, 0}, {32, second}}, false, input_major, DType::fp32}).list_products(out);
    return out.size();
  };
  EXPECT_EQ(products(16 * 16, false), 3u);
  EXPECT_EQ(products(16 * 16 + 256, false), 6u);
  EXPECT_EQ(products(16 * 16, true), 6u);  // adjacent in memory does not mean adjacent in a row
}

}  // namespace
}  // namespace strata::models
