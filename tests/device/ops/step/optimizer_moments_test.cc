// Moments in bf16 and in 8 bits (device/numeric/storage_format.h), as the optimizer keeps them.
#include "device/numeric/dtype.h"
#include "device/numeric/dynamic_map.h"
#include "device/numeric/philox.h"
#include "tests/device/ops/step/optimizer_case.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kAlgorithms;
using testing::optimizer_of;
using testing::scalars_of;
using testing::State;

// bf16 moments are the results of fp32 arithmetic, rounded with the bits of one Philox number per element: the low half
// for moment 1, the high half for moment 2. Other units, steps and seeds draw other numbers.
TEST(OptimizerMoments, Bf16MomentsAreRoundedByPhilox) {
  const std::size_t n = 700;
  Array g = Array::random(DType::fp32, n, 3);
  const StepScalars s = scalars_of(9);
  State state(n, DType::bf16, Algorithm::adamw, StorageFormat::bf16), exact(n, DType::bf16);
  in_lane(1, [&](Lane& lane) {
    state.update(lane, s, g);
    exact.update(lane, s, g);
  });
  EXPECT_TRUE(state.master == exact.master) << "moments are rounded after the update";
  const auto* m = reinterpret_cast<const bf16*>(state.moment1.data());
  const auto* v = reinterpret_cast<const bf16*>(state.moment2.data());
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t word = random_word({7, s.first_micro_batch, 0x80000000u | state.unit}, i);
    ASSERT_EQ(m[i].bits, round_stochastically(exact.moment1[i], static_cast<std::uint16_t>(word)).bits) << i;
    ASSERT_EQ(v[i].bits, round_stochastically(exact.moment2[i], static_cast<std::uint16_t>(word >> 16)).bits) << i;
  }
  const auto moment_of = [&](auto&& change) {
    State other(n, DType::bf16, Algorithm::adamw, StorageFormat::bf16);
    StepScalars t = s;
    change(other, t);
    in_lane(1, [&](Lane& lane) { other.update(lane, t, g); });
    return other.moment1;
  };
  EXPECT_TRUE(moment_of([](State&, StepScalars&) {}) == state.moment1);
  EXPECT_FALSE(moment_of([](State& o, StepScalars&) { o.unit = 4; }) == state.moment1);
  EXPECT_FALSE(moment_of([](State&, StepScalars& t) { ++t.first_micro_batch; }) == state.moment1);
  EXPECT_FALSE(moment_of([](State&, StepScalars& t) { ++t.seed; }) == state.moment1);
}

// 500 steps of a gradient that rounding to nearest bf16 would lose (0.01 of a unit each) reach the fp32 moment on
// average.
TEST(OptimizerMoments, Bf16MomentsKeepSmallGradientsInTheMean) {
  const std::size_t n = 4096;
  Optimizer o = optimizer_of(Algorithm::sgd);
  o.momentum = 0.9999;
  o.weight_decay = 0;
  State state(n, DType::bf16, Algorithm::sgd, StorageFormat::bf16);
  Array g(DType::fp32, n);
  for (std::size_t i = 0; i < n; ++i) g.set(i, 1.0f);
  StepScalars s = scalars_of(1);
  double expected = 0;
  in_lane(1, [&](Lane& lane) {
    for (int t = 1; t <= 500; ++t) {
      s = scalars_of(t);
      const float size = t == 1 ? 1.0f : 1e-4f;
      expected = expected * 0.9999 + static_cast<double>(size);
      s.gradient_factor = size;
      device::update(lane, o, &s, state.operands(0, n, g, nullptr, true));
      lane.synchronize();
    }
  });
  const auto* m = reinterpret_cast<const bf16*>(state.moment1.data());
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i) mean += static_cast<double>(to_float(m[i])) / n;
  // A step's error is below one unit (2^-7 of m <= 1), 500 of them over 4,096 elements: five deviations of their mean.
  EXPECT_NEAR(mean, expected, 5 * 0x1p-8 * std::sqrt(500.0 / n));
}

// With 8-bit moments, the master moves as with the fp32 moments that the codes represent, and the nearest code is kept.
TEST(OptimizerMoments, Block8KeepsTheNearestCodes) {
  const std::size_t n = 5 * 256 + 77;
  for (const Algorithm algorithm : kAlgorithms) {
    State state(n, DType::bf16, algorithm, StorageFormat::block8), exact(n, DType::bf16, algorithm);
    for (int t = 1; t <= 3; ++t) {
      Array g = Array::random(DType::fp32, n, 20 + static_cast<unsigned>(t));
      for (std::size_t i = 0; i < n; ++i) g.set(i, g[i] * std::pow(10.0f, -static_cast<float>(i % 9)));
      const StepScalars s = scalars_of(t);
      in_lane(1, [&](Lane& lane) {
        state.update(lane, s, g);
        exact.update(lane, s, g);
      });
      EXPECT_TRUE(state.master == exact.master) << "moments are rounded after the update";
      const auto check = [&](const Array& kept, Array& wanted, auto decoded, auto encoded) {
        for (std::size_t block = 0; block * 256 < n; ++block) {
          const std::byte* record = kept.data() + block * 260;
          const auto* codes = reinterpret_cast<const std::uint8_t*>(record + 4);
          float scale = 0, largest = 0;
          std::memcpy(&scale, record, 4);
          const std::size_t size = std::min<std::size_t>(256, n - block * 256);
          for (std::size_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(wanted[block * 256 + i]));
          ASSERT_EQ(scale, largest);
          for (std::size_t i = 0; i < 256; ++i) {
            const float x = i < size ? wanted[block * 256 + i] * (1.0f / scale) : 0.0f;
            ASSERT_EQ(codes[i], encoded(x)) << "block " << block << ", " << i;
            if (i < size) wanted.set(block * 256 + i, decoded(codes[i]) * scale);  // continue from what is kept
          }
        }
      };
      check(state.moment1, exact.moment1, decode<true>, encode<true>);
      if (algorithm == Algorithm::adamw) check(state.moment2, exact.moment2, decode<false>, encode<false>);
    }
  }
}

// If the squares of gradients overflow or vanish, master and first moment contain neither NaN nor infinity.
TEST(OptimizerMoments, Block8SurvivesExtremes) {
  for (const float size : {1e-22f, 1e-30f, 1e-44f, 1e25f}) {
    State state(512, DType::bf16, Algorithm::adamw, StorageFormat::block8);
    Array g = Array::random(DType::fp32, 512, 3, size);
    StepScalars s{};
    in_lane(1, [&](Lane& lane) {
      for (int t = 1; t <= 3; ++t) {
        s = scalars_of(t);
        state.update(lane, s, g);
        lane.synchronize();
      }
    });
    for (std::size_t i = 0; i < 512; ++i) ASSERT_TRUE(std::isfinite(state.master[i])) << size << " " << i;
  }
}

}  // namespace
}  // namespace strata::device
