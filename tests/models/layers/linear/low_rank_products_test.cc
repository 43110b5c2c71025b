// Compares linear layers with adapters, y = W x + s B(A x), and all gradients with double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/linear/linear.h"
#include "tests/device/arrays.h"
#include "tests/models/reference.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

using device::DType;
using device::testing::Array;

struct LowRankProductsCase {
  std::string name;
  std::size_t rows, in;
  std::vector<std::size_t> outs;
  std::vector<LowRank> low_ranks;  // of the outs: rank and scale
  bool input_major;
  Gelu behind = Gelu::none, before = Gelu::none;
  DType dtype = DType::fp32;
  bool dora = false;  // of the adapters
};

void PrintTo(const LowRankProductsCase& c, std::ostream* out) {
  *out << c.name << (c.input_major ? ", [in, out]" : ", [out, in]") << ", " << name_of(c.dtype);
}

class LowRankTest : public ::testing::TestWithParam<LowRankProductsCase> {
 protected:
  // W is frozen and has a bias. A and B have a pool of their own, as in a unit.
  Linear::Spec place() {
    Linear::Spec spec{c_.rows, c_.in, {}, true, c_.input_major, c_.dtype, {}, c_.behind, c_.before};
    const auto next = [](std::size_t& flat, std::size_t n) {
      const std::size_t at = flat;
      flat = (flat + n + 255) / 256 * 256;
      return at;
    };
    for (std::size_t i = 0; i < c_.outs.size(); ++i)
      spec.tensors.push_back(
          {c_.outs[i], offset_in(PoolKind::frozen, next(frozen_size_, c_.outs[i] * c_.in)), 0, c_.low_ranks[i]});
    for (Linear::Tensor& tensor : spec.tensors)
      tensor.bias = offset_in(PoolKind::frozen, next(frozen_size_, tensor.out));
    for (Linear::Tensor& tensor : spec.tensors)
      if (tensor.low_rank.rank > 0) tensor.low_rank.a = next(size_, tensor.low_rank.rank * c_.in);
    for (Linear::Tensor& tensor : spec.tensors)
      if (tensor.low_rank.rank > 0) tensor.low_rank.b = next(size_, tensor.low_rank.rank * tensor.out);
    for (Linear::Tensor& tensor : spec.tensors) {
      if (tensor.low_rank.rank == 0 || !c_.dora) continue;
      tensor.low_rank.dora = true;
      tensor.low_rank.magnitude = next(size_, tensor.out);
    }
    return spec;
  }
  double norm(const Linear::Tensor& t, std::size_t o) const {
    double sum = 0;
    for (std::size_t i = 0; i < c_.in; ++i) {
      double v = weight(t, o, i);
      for (std::size_t r = 0; r < t.low_rank.rank; ++r) v += t.low_rank.scale * b(t, o, r) * a(t, r, i);
      sum += v * v;
    }
    return std::sqrt(sum);
  }
  // The factor by which DoRA multiplies an output before its bias.
  double factor(const Linear::Tensor& t, std::size_t o) const {
    return t.low_rank.dora ? values_[t.low_rank.magnitude + o] / norm(t, o) : 1;
  }
  ParameterRange parameters() { return {values_.view(), 0, frozen_.view(), 0}; }

  double weight(const Linear::Tensor& t, std::size_t o, std::size_t i) const {
    return frozen_[place_in_pool(t.weight) + (c_.input_major ? i * t.out + o : o * c_.in + i)];
  }
  double a(const Linear::Tensor& t, std::size_t r, std::size_t i) const {
    return values_[t.low_rank.a + r * c_.in + i];
  }
  double b(const Linear::Tensor& t, std::size_t o, std::size_t r) const {
    return values_[t.low_rank.b + o * t.low_rank.rank + r];
  }
  double down(const Linear::Tensor& t, std::size_t row, std::size_t r) const {
    double sum = 0;
    for (std::size_t i = 0; i < c_.in; ++i) sum += x_[row * c_.in + i] * a(t, r, i);
    return sum * t.low_rank.scale;
  }
  // The gradient of the scaled x A^T.
  double d_down(const Linear::Tensor& t, const std::vector<double>& d_z, std::size_t column, std::size_t row,
                std::size_t r) const {
    double sum = 0;
    for (std::size_t o = 0; o < t.out; ++o) sum += d_z[row * out_ + column + o] * b(t, o, r);
    return sum;
  }
  template <typename F>
  void for_tensors(F&& f) const {
    std::size_t column = 0;
    for (const Linear::Tensor& tensor : spec_.tensors) {
      f(tensor, column);
      column += tensor.out;
    }
  }
  // Values are about 1 in size. x A^T and s dy B are rounded, and so are the sums that contain them.
  double tolerance() const { return c_.dtype == DType::fp32 ? 3e-5 : 0.15; }

  const LowRankProductsCase& c_ = GetParam();
  std::size_t size_ = 0, frozen_size_ = 0;
  const Linear::Spec spec_ = place();
  const Linear linear_{spec_};
  const std::size_t out_ = linear_.out();
  Array values_ = Array::random(c_.dtype, size_, 1), frozen_ = Array::random(c_.dtype, frozen_size_, 6);
  Array x_ = Array::random(c_.dtype, c_.rows* c_.in, 2);
  Array dy_ = Array::random(c_.dtype, c_.rows* out_, 3);
  testing::Buffer scratch_{linear_.scratch_bytes(2) / sizeof(float) + 1, DType::fp32};
};

TEST_P(LowRankTest, Forward) {
  Array y(c_.dtype, c_.rows * out_), active(c_.dtype, c_.rows * out_);
  device::testing::in_lane(2, [&](device::Lane& lane) {
    linear_.forward(lane, parameters(), x_.view(), y.view(), scratch_.view(),
                    c_.behind == Gelu::none ? device::View{} : active.view());
  });
  for_tensors([&](const Linear::Tensor& t, std::size_t column) {
    for (std::size_t row = 0; row < c_.rows; ++row)
      for (std::size_t o = 0; o < t.out; ++o) {
        double value = 0;
        for (std::size_t i = 0; i < c_.in; ++i) value += x_[row * c_.in + i] * weight(t, o, i);
        for (std::size_t r = 0; r < t.low_rank.rank; ++r) value += down(t, row, r) * b(t, o, r);
        value = value * factor(t, o) + frozen_[place_in_pool(t.bias) + o];
        const std::size_t at = row * out_ + column + o;
        ASSERT_NEAR(y[at], value, tolerance() * (1 + std::abs(value))) << "row " << row << ", out " << column + o;
        if (c_.behind == Gelu::none) continue;
        const double gelu = c_.behind == Gelu::erf ? testing::gelu_erf(y[at]) : testing::gelu_tanh(y[at]);
        ASSERT_NEAR(active[at], gelu, tolerance() * (1 + std::abs(gelu)));
      }
  });
}

TEST_P(LowRankTest, WithoutBEqualsTheLayerItself) {
  if (c_.dora) GTEST_SKIP() << "a magnitude scales it";
  Linear::Spec plain = spec_;
  for (Linear::Tensor& tensor : plain.tensors) tensor.low_rank = {};
  const Linear without(plain);
  for (const Linear::Tensor& tensor : spec_.tensors)
    for (std::size_t i = 0; i < tensor.low_rank.rank * tensor.out; ++i) values_.set(tensor.low_rank.b + i, 0);
  testing::Buffer scratch(without.scratch_bytes(2) / sizeof(float) + 1, DType::fp32);
  Array y(c_.dtype, c_.rows * out_), other = y, active = y, other_active = y;
  const bool gelu = c_.behind != Gelu::none;
  device::testing::in_lane(2, [&](device::Lane& lane) {
    linear_.forward(lane, parameters(), x_.view(), y.view(), scratch_.view(), gelu ? active.view() : device::View{});
    without.forward(lane, parameters(), x_.view(), other.view(), scratch.view(),
                    gelu ? other_active.view() : device::View{});
  });
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], other[i]) << i;
  for (std::size_t i = 0; gelu && i < y.size(); ++i) ASSERT_EQ(active[i], other_active[i]) << i;
}

TEST_P(LowRankTest, Backward) {
  Array dx(c_.dtype, c_.rows * c_.in), gradients(c_.dtype, size_);
  Array inactive = Array::random(c_.dtype, c_.rows * c_.in, 4);
  std::memset(gradients.data(), 0xff, size_ * size_of(c_.dtype));
  device::testing::in_lane(2, [&](device::Lane& lane) {
    linear_.backward(lane, parameters(), x_.view(), dy_.view(), dx.view(), {gradients.view()}, scratch_.view(),
                     c_.before == Gelu::none ? device::ConstView{} : inactive.view());
  });
  std::vector<double> d_x(c_.rows * c_.in), d_z(c_.rows * out_);
  for_tensors([&](const Linear::Tensor& t, std::size_t column) {
    for (std::size_t o = 0; o < t.out; ++o)
      for (std::size_t row = 0; row < c_.rows; ++row)
        d_z[row * out_ + column + o] = dy_[row * out_ + column + o] * factor(t, o);
  });
  std::vector<bool> written(size_);
  for_tensors([&](const Linear::Tensor& t, std::size_t column) {
    for (std::size_t row = 0; row < c_.rows; ++row)
      for (std::size_t i = 0; i < c_.in; ++i) {
        for (std::size_t o = 0; o < t.out; ++o) d_x[row * c_.in + i] += d_z[row * out_ + column + o] * weight(t, o, i);
        for (std::size_t r = 0; r < t.low_rank.rank; ++r)
          d_x[row * c_.in + i] += t.low_rank.scale * d_down(t, d_z, column, row, r) * a(t, r, i);
      }
    for (std::size_t r = 0; r < t.low_rank.rank; ++r) {
      for (std::size_t i = 0; i < c_.in; ++i) {
        double value = 0;
        for (std::size_t row = 0; row < c_.rows; ++row)
          value += t.low_rank.scale * d_down(t, d_z, column, row, r) * x_[row * c_.in + i];
        ASSERT_NEAR(gradients[t.low_rank.a + r * c_.in + i], value, 2 * tolerance() * (1 + std::abs(value))) << "dA";
        written[t.low_rank.a + r * c_.in + i] = true;
      }
      for (std::size_t o = 0; o < t.out; ++o) {
        double value = 0;
        for (std::size_t row = 0; row < c_.rows; ++row) value += d_z[row * out_ + column + o] * down(t, row, r);
        const std::size_t at = t.low_rank.b + o * t.low_rank.rank + r;
        ASSERT_NEAR(gradients[at], value, 2 * tolerance() * (1 + std::abs(value))) << "dB";
        written[at] = true;
      }
    }
    for (std::size_t o = 0; t.low_rank.dora && o < t.out; ++o) {
      double value = 0;
      for (std::size_t row = 0; row < c_.rows; ++row) {
        double z = 0;
        for (std::size_t i = 0; i < c_.in; ++i) z += x_[row * c_.in + i] * weight(t, o, i);
        for (std::size_t r = 0; r < t.low_rank.rank; ++r) z += down(t, row, r) * b(t, o, r);
        value += dy_[row * out_ + column + o] * z / norm(t, o);
      }
      const std::size_t at = t.low_rank.magnitude + o;
      ASSERT_NEAR(gradients[at], value, 2 * tolerance() * (1 + std::abs(value))) << "dm";
      written[at] = true;
    }
  });
  for (std::size_t i = 0; i < d_x.size(); ++i) {
    double slope = 1;
    if (c_.before != Gelu::none) {
      constexpr double kStep = 1e-5;
      const auto gelu = [&](double v) { return c_.before == Gelu::erf ? testing::gelu_erf(v) : testing::gelu_tanh(v); };
      slope = (gelu(inactive[i] + kStep) - gelu(inactive[i] - kStep)) / (2 * kStep);
    }
    ASSERT_NEAR(dx[i], d_x[i] * slope, tolerance() * (1 + std::abs(d_x[i]))) << "dx at " << i;
  }
  for (std::size_t i = 0; i < size_; ++i) EXPECT_TRUE(written[i] || std::isnan(gradients[i])) << "between, at " << i;
}

// A call that computes DoRA's scales leaves them, and a later call uses them with the same bits.
TEST_P(LowRankTest, KeptScalesAreComputedOnce) {
  EXPECT_EQ(linear_.scales(), c_.dora ? out_ : 0);
  if (!c_.dora) return;
  Array y(c_.dtype, c_.rows * out_), kept(DType::fp32, out_);
  const auto forward = [&](const KeptScales& scales) {
    Array active(c_.dtype, c_.rows * out_);
    device::testing::in_lane(2, [&](device::Lane& lane) {
      linear_.forward(lane, parameters(), x_.view(), y.view(), scratch_.view(),
                      c_.behind == Gelu::none ? device::View{} : active.view(), {}, {}, scales);
    });
    std::vector<double> out;
    for (std::size_t i = 0; i < y.size(); ++i) out.push_back(y[i]);
    return out;
  };
  const std::vector<double> alone = forward({});
  EXPECT_EQ(forward({kept.view(), false}), alone);
  for (const Linear::Tensor& tensor : spec_.tensors)
    for (std::size_t o = 0; tensor.low_rank.dora && o < tensor.out; ++o)
      values_.set(tensor.low_rank.magnitude + o, 2 * values_[tensor.low_rank.magnitude + o]);
  EXPECT_EQ(forward({kept.view(), true}), alone) << "computed again";
  EXPECT_NE(forward({kept.view(), false}), alone);
}

std::vector<LowRankProductsCase> low_rank_cases() {
  std::vector<LowRankProductsCase> out;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16})
    for (const bool major : {false, true}) {
      out.push_back({"one", 37, 24, {40}, {{4, 2}}, major, Gelu::none, Gelu::none, dtype});
      out.push_back({"gelus", 37, 24, {40}, {{3, 0.5f}}, major, Gelu::tanh, Gelu::erf, dtype});
      out.push_back(
          {"three, of which some", 20, 32, {32, 8, 16}, {{4, 2}, {}, {2, 2}}, major, Gelu::none, Gelu::none, dtype});
      // A gap follows A of 3 x 32, but not A of 8 x 32.
      out.push_back({"neighbours", 20, 32, {32, 8, 16}, {{8, 2}, {8, 2}, {3, 2}}, major, Gelu::erf, Gelu::none, dtype});
      out.push_back({"scales", 20, 32, {32, 8}, {{8, 2}, {8, 0.3f}}, major, Gelu::none, Gelu::none, dtype});
      out.push_back(
          {"ranks above widths", 20, 32, {16, 8}, {{24, 0.5f}, {40, 0.1f}}, major, Gelu::none, Gelu::none, dtype});
      out.push_back({"one row", 1, 32, {32, 8}, {{8, 2}, {4, 0.3f}}, major, Gelu::tanh, Gelu::none, dtype});
    }
  const std::size_t plain = out.size();
  for (std::size_t i = 0; i < plain; ++i) {
    out.push_back(out[i]);
    out.back().name += ", DoRA";
    out.back().dora = true;
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Layouts, LowRankTest, ::testing::ValuesIn(low_rank_cases()));

}  // namespace
}  // namespace strata::models
