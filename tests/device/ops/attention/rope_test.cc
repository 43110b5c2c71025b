#include "device/cpu/kernels/tables.h"
#include "device/ops/attention/attention.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;
using testing::tolerance;

constexpr std::size_t kPositions = 50;

class Rope : public ::testing::TestWithParam<std::size_t> {
 protected:
  const std::size_t half = GetParam() / 2;
  const RopeShape shape{.rows = 700, .heads = 3, .head_dim = GetParam(), .stride = 3 * GetParam() + 5};
  Array cos{DType::fp32, kPositions*half}, sin{DType::fp32, kPositions*half};
  std::vector<std::uint32_t> positions;

  void SetUp() override {
    for (std::size_t p = 0; p < kPositions; ++p)
      for (std::size_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        cos.set(p * half + i, static_cast<float>(std::cos(angle)));
        sin.set(p * half + i, static_cast<float>(std::sin(angle)));
      }
    for (std::size_t r = 0; r < shape.rows; ++r) positions.push_back(static_cast<std::uint32_t>(r * 13 % kPositions));
  }
  Array rotate(const Array& x, int threads, bool inverse) {
    Array y = x;
    in_lane(threads,
            [&](Lane& lane) { rope(lane, shape, y.view(), positions.data(), cos.view(), sin.view(), inverse); });
    return y;
  }
};

TEST_P(Rope, PairsHalvesAsHuggingFace) {
  for (const DType dtype : kDTypes)
    for (const bool inverse : {false, true}) {
      const Array x = Array::random(dtype, shape.rows * shape.stride, 1);
      testing::expect_same_bits_on_any_threads(
          [&](int threads) { return std::vector<Array>{rotate(x, threads, inverse)}; });
      const Array y = rotate(x, 1, inverse);
      for (std::size_t r = 0; r < shape.rows; ++r) {
        const std::size_t row = r * shape.stride;
        for (std::size_t h = 0; h < shape.heads; ++h)
          for (std::size_t i = 0; i < half; ++i) {
            const std::size_t a = row + h * shape.head_dim + i, b = a + half;
            const double c = cos[positions[r] * half + i];
            const double s = sin[positions[r] * half + i] * (inverse ? -1.0f : 1.0f);
            ASSERT_NEAR(y[a], x[a] * c - x[b] * s, tolerance(dtype, x[a] * c - x[b] * s, 2.0));
            ASSERT_NEAR(y[b], x[b] * c + x[a] * s, tolerance(dtype, x[b] * c + x[a] * s, 2.0));
          }
        for (std::size_t i = row + shape.heads * shape.head_dim; i < row + shape.stride; ++i) ASSERT_EQ(y[i], x[i]);
      }
    }
}

// The backward of an orthogonal map is its inverse, so rotating forth and back gives x up to rounding.
TEST_P(Rope, InverseUndoes) {
  const Array x = Array::random(DType::fp32, shape.rows * shape.stride, 1);
  const Array y = rotate(rotate(x, 1, false), 1, true);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 4e-7);
}

INSTANTIATE_TEST_SUITE_P(HeadDims, Rope, ::testing::Values(2, 22, 32, 64, 128));

TEST(RopeKernels, SameBitsOnBothInstructionSets) {
  const std::size_t half = 37, heads = 3;
  const Array cos = Array::random(DType::fp32, half, 1), sin = Array::random(DType::fp32, half, 2);
  testing::expect_same_bits_on_both_isas(cpu::avx2::rope_kernels_table, cpu::avx512::rope_kernels_table,
                                         [&](const cpu::RopeKernels& k) {
                                           std::vector<Array> out;
                                           for (std::size_t t = 0; t < 3; ++t)
                                             for (const bool inverse : {false, true}) {
                                               Array x = Array::random(kDTypes[t], 2 * half * heads, 3);
                                               Array c = cos, s = sin;
                                               k.rotate[t](x.data(), heads, half, c.floats(), s.floats(), inverse);
                                               out.push_back(x);
                                             }
                                           return out;
                                         });
}

}  // namespace
}  // namespace strata::device
