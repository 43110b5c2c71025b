// Compares dropout of the input of a linear layer's adapters with double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "models/layers/linear/linear.h"
#include "tests/device/arrays.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

using device::DType;
using device::testing::Array;

// A multiplies x after dropout, which has its own site for each tensor. The gradient passes through the same dropout.
TEST(LowRankDropout, AppliesToTheInputOfA) {
  constexpr std::size_t kRows = 5, kIn = 64, kOut = 8;
  constexpr float kProbability = 0.5f;
  // W is zero, so that the output comes from the adapters alone.
  Linear::Spec spec{
      kRows, kIn,   {{kOut, offset_in(PoolKind::frozen, 0)}, {kOut, offset_in(PoolKind::frozen, kOut * kIn)}},
      false, false, DType::fp32};
  spec.tensors[0].low_rank = {4, 2, 0, 512};
  spec.tensors[1].low_rank = {4, 2, 256, 768};
  spec.adapter_dropout = kProbability;
  const Linear linear(spec);
  Array values = Array::random(DType::fp32, 1024, 1), frozen(DType::fp32, 2 * kOut * kIn);
  Array x = Array::random(DType::fp32, kRows * kIn, 2), dy = Array::random(DType::fp32, kRows * 2 * kOut, 3);
  Array y(DType::fp32, kRows * 2 * kOut), dx(DType::fp32, kRows * kIn), gradients(DType::fp32, 1024);
  std::vector<Array> left;
  device::StepScalars scalars{};
  scalars.seed = 11;
  const device::Dropout dropout{kProbability, 0x40000007, 3, &scalars};
  testing::Buffer scratch(linear.scratch_bytes(1) / sizeof(float) + 1, DType::fp32);
  const ParameterRange parameters{values.view(), 0, frozen.view(), 0};
  device::testing::in_lane(1, [&](device::Lane& lane) {
    linear.forward(lane, parameters, x.view(), y.view(), scratch.view(), {}, dropout);
    linear.backward(lane, parameters, x.view(), dy.view(), dx.view(), {gradients.view()}, scratch.view(), {}, dropout);
    for (std::uint32_t i = 0; i < 2; ++i) {
      left.push_back(x);
      device::Dropout one = dropout;
      one.site += i;
      device::dropout(lane, one, x.view(), {}, left.back().view());
    }
  });
  EXPECT_FALSE(left[0] == left[1]);
  std::vector<double> d_x(kRows * kIn);
  for (std::size_t t = 0; t < 2; ++t) {
    const LowRank& at = spec.tensors[t].low_rank;
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t o = 0; o < kOut; ++o) {
        double value = 0;
        for (std::size_t r = 0; r < at.rank; ++r)
          for (std::size_t i = 0; i < kIn; ++i)
            value += at.scale * left[t][row * kIn + i] * values[at.a + r * kIn + i] * values[at.b + o * at.rank + r];
        EXPECT_NEAR(y[row * 2 * kOut + t * kOut + o], value, 1e-4);
      }
      for (std::size_t i = 0; i < kIn; ++i) {
        double value = 0;
        for (std::size_t r = 0; r < at.rank; ++r)
          for (std::size_t o = 0; o < kOut; ++o)
            value += at.scale * dy[row * 2 * kOut + t * kOut + o] * values[at.b + o * at.rank + r] *
                     values[at.a + r * kIn + i];
        const bool kept = left[t][row * kIn + i] != 0;
        d_x[row * kIn + i] += kept ? value / (1 - kProbability) : 0;
      }
    }
    for (std::size_t r = 0; r < at.rank; ++r)
      for (std::size_t i = 0; i < kIn; ++i) {
        double value = 0;
        for (std::size_t row = 0; row < kRows; ++row)
          for (std::size_t o = 0; o < kOut; ++o)
            value +=
                at.scale * dy[row * 2 * kOut + t * kOut + o] * values[at.b + o * at.rank + r] * left[t][row * kIn + i];
        EXPECT_NEAR(gradients[at.a + r * kIn + i], value, 1e-4) << "dA";
      }
  }
  for (std::size_t i = 0; i < d_x.size(); ++i) EXPECT_NEAR(dx[i], d_x[i], 1e-4) << "dx at " << i;
}

// With DoRA, as in peft, W multiplies the dropped elements of x without a scale: y = W (x - x') + g (W + s B A) x'.
// Compared with double precision; gradients are finite differences of the loss sum(y dy).
TEST(LowRankDropout, MatchesPeftWithDora) {
  constexpr std::size_t kRows = 5, kIn = 32, kOut = 8;
  constexpr float kProbability = 0.5f;
  for (const bool major : {false, true}) {
    Linear::Spec spec{kRows, kIn,   {{kOut, offset_in(PoolKind::frozen, 0)}, {kOut, offset_in(PoolKind::frozen, 512)}},
                      false, major, DType::fp32};
    spec.tensors[0].low_rank = {4, 2, 0, 512, true, 256 * 3};
    spec.tensors[1].low_rank = {4, 0.5f, 256, 1024, true, 256 * 5};
    spec.adapter_dropout = kProbability;
    const Linear linear(spec);
    Array values = Array::random(DType::fp32, 2048, 1), frozen = Array::random(DType::fp32, 1024, 4);
    Array x = Array::random(DType::fp32, kRows * kIn, 2), dy = Array::random(DType::fp32, kRows * 2 * kOut, 3);
    Array y(DType::fp32, kRows * 2 * kOut), dx(DType::fp32, kRows * kIn), gradients(DType::fp32, 2048);
    std::vector<Array> left;
    device::StepScalars scalars{};
    scalars.seed = 11;
    const device::Dropout dropout{kProbability, 0x40000007, 3, &scalars};
    testing::Buffer scratch(linear.scratch_bytes(1) / sizeof(float) + 1, DType::fp32);
    const ParameterRange parameters{values.view(), 0, frozen.view(), 0};
    device::testing::in_lane(1, [&](device::Lane& lane) {
      linear.forward(lane, parameters, x.view(), y.view(), scratch.view(), {}, dropout);
      linear.backward(lane, parameters, x.view(), dy.view(), dx.view(), {gradients.view()}, scratch.view(), {},
                      dropout);
      for (std::uint32_t i = 0; i < 2; ++i) {
        left.push_back(x);
        device::Dropout one = dropout;
        one.site += i;
        device::dropout(lane, one, x.view(), {}, left.back().view());
      }
    });
    std::vector<double> v(2048), in(kRows * kIn);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = values[i];
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = x[i];
    std::vector<double> norms;  // which count as constants
    for (const Linear::Tensor& t : spec.tensors)
      for (std::size_t o = 0; o < kOut; ++o) {
        double sum = 0;
        for (std::size_t i = 0; i < kIn; ++i) {
          double w = frozen[place_in_pool(t.weight) + (major ? i * kOut + o : o * kIn + i)];
          for (std::size_t r = 0; r < 4; ++r)
            w += t.low_rank.scale * v[t.low_rank.b + o * 4 + r] * v[t.low_rank.a + r * kIn + i];
          sum += w * w;
        }
        norms.push_back(std::sqrt(sum));
      }
    const auto output = [&](std::size_t t, std::size_t row, std::size_t o) {
      const Linear::Tensor& tensor = spec.tensors[t];
      const LowRank& at = tensor.low_rank;
      const double g = v[at.magnitude + o] / norms[t * kOut + o];
      double plain = 0, z = 0;
      for (std::size_t i = 0; i < kIn; ++i) {
        const std::size_t j = row * kIn + i;
        const double w = frozen[place_in_pool(tensor.weight) + (major ? i * kOut + o : o * kIn + i)];
        const double kept = left[t][j] != 0 ? in[j] / (1 - kProbability) : 0;
        plain += w * (in[j] - kept);
        z += w * kept;
        for (std::size_t r = 0; r < 4; ++r) z += at.scale * kept * v[at.a + r * kIn + i] * v[at.b + o * 4 + r];
      }
      return plain + g * z;
    };
    const auto loss = [&] {
      double sum = 0;
      for (std::size_t t = 0; t < 2; ++t)
        for (std::size_t row = 0; row < kRows; ++row)
          for (std::size_t o = 0; o < kOut; ++o) sum += output(t, row, o) * dy[row * 2 * kOut + t * kOut + o];
      return sum;
    };
    const auto slope = [&](double& at) {
      const double before = std::exchange(at, at + 1e-4), above = loss();
      at = before - 1e-4;
      const double below = loss();
      at = before;
      return (above - below) / 2e-4;
    };
    for (std::size_t t = 0; t < 2; ++t)
      for (std::size_t row = 0; row < kRows; ++row)
        for (std::size_t o = 0; o < kOut; ++o) ASSERT_NEAR(y[row * 2 * kOut + t * kOut + o], output(t, row, o), 1e-4);
    for (std::size_t i = 0; i < in.size(); ++i) ASSERT_NEAR(dx[i], slope(in[i]), 2e-4) << "dx at " << i;
    for (const Linear::Tensor& t : spec.tensors) {
      for (std::size_t i = 0; i < 4 * kIn; ++i)
        ASSERT_NEAR(gradients[t.low_rank.a + i], slope(v[t.low_rank.a + i]), 2e-4);
      for (std::size_t i = 0; i < 4 * kOut; ++i)
        ASSERT_NEAR(gradients[t.low_rank.b + i], slope(v[t.low_rank.b + i]), 2e-4);
      for (std::size_t o = 0; o < kOut; ++o)
        ASSERT_NEAR(gradients[t.low_rank.magnitude + o], slope(v[t.low_rank.magnitude + o]), 2e-4);
    }
  }
}

}  // namespace
}  // namespace strata::models
