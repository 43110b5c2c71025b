#include "device/cpu/kernels/tables.h"
#include "device/numeric/philox.h"
#include "device/ops/elementwise.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;

constexpr std::size_t kOdd = 2 * 32768 + 45;

StepScalars scalars_of(std::uint64_t seed, std::uint64_t first_micro_batch) {
  StepScalars s{};
  s.seed = seed;
  s.first_micro_batch = first_micro_batch;
  return s;
}

// Compares every element with the scalar generator at the documented counter.
TEST(Dropout, FollowsTheStream) {
  const StepScalars scalars = scalars_of(0x123456789abcdef0ull, (3ull << 32) + 5);
  const float p = 0.1f;
  const Dropout use{.probability = p, .site = 77, .micro_batch = 2, .scalars = &scalars};
  const RandomStream stream{.seed = scalars.seed, .micro_batch = (3ull << 32) + 7, .site = 77};
  for (const DType dtype : kDTypes)
    for (const bool with_residual : {false, true}) {
      Array x = Array::random(dtype, kOdd, 1), residual = Array::random(dtype, kOdd, 2);
      const auto run = [&](int threads) {
        Array out = with_residual ? residual : x;  // in place over either
        in_lane(threads, [&](Lane& lane) {
          if (with_residual)
            dropout(lane, use, x.view(), out.view(), out.view());
          else
            dropout(lane, use, out.view(), {}, out.view());
        });
        return std::vector<Array>{out};
      };
      testing::expect_same_bits_on_any_threads(run);
      const Array out = run(1)[0];
      Array expected(dtype, kOdd);
      for (std::size_t i = 0; i < kOdd; ++i) {
        const bool keep = random_word(stream, i) >= 429496736u;  // 0.1f * 2^32
        const float y = keep ? x[i] * (1.0f / (1.0f - p)) : 0.0f;
        expected.set(i, with_residual ? residual[i] + y : y);
      }
      EXPECT_TRUE(out == expected) << name_of(dtype);
    }
}

// A rank that has some of the rows drops the same elements as a rank that has all of them.
TEST(Dropout, CountsFromTheOperandsFirstElement) {
  const StepScalars scalars = scalars_of(7, 11);
  Dropout use{.probability = 0.3f, .site = 9, .micro_batch = 1, .scalars = &scalars};
  for (const DType dtype : kDTypes) {
    Array all = Array::random(dtype, kOdd, 3);
    const Array x = all;
    in_lane(2, [&](Lane& lane) { dropout(lane, use, all.view(), {}, all.view()); });
    for (const std::size_t first : {4, 4 * 777, 65536 + 44}) {
      Array rest(dtype, kOdd - first);
      for (std::size_t i = 0; i < rest.size(); ++i) rest.set(i, x[first + i]);
      use.first = first;
      in_lane(2, [&](Lane& lane) { dropout(lane, use, rest.view(), {}, rest.view()); });
      for (std::size_t i = 0; i < rest.size(); ++i) ASSERT_EQ(rest[i], all[first + i]) << name_of(dtype) << ", " << i;
      use.first = 0;
    }
  }
}

// Some columns of a matrix lose the same elements as in the whole matrix, whether or not they are whole packs.
TEST(Dropout, CountsColumnsOfACompleteMatrix) {
  constexpr std::size_t kRows = 37, kStride = 88;
  const StepScalars scalars = scalars_of(5, 3);
  const Dropout use{.probability = 0.4f, .site = 2, .micro_batch = 1, .scalars = &scalars};
  for (const DType dtype : kDTypes)
    for (const auto& [first, columns] : {std::pair{0, 44}, {48, 40}, {84, 4}}) {
      Array all = Array::random(dtype, kRows * kStride, 3);
      const Array x = all;
      in_lane(2, [&](Lane& lane) { dropout(lane, use, all.view(), {}, all.view()); });
      const auto from = static_cast<std::size_t>(first), n = static_cast<std::size_t>(columns);
      Array some(dtype, kRows * n);
      const auto full_index = [&](std::size_t i) { return i / n * kStride + from + i % n; };
      for (std::size_t i = 0; i < some.size(); ++i) some.set(i, x[full_index(i)]);
      Dropout of_columns = use;
      of_columns.first = from;
      of_columns.columns = static_cast<std::uint32_t>(n);
      of_columns.stride = kStride;
      in_lane(2, [&](Lane& lane) { dropout(lane, of_columns, some.view(), {}, some.view()); });
      for (std::size_t i = 0; i < some.size(); ++i)
        ASSERT_EQ(some[i], all[full_index(i)]) << name_of(dtype) << ", " << i;
    }
}

TEST(Dropout, KeepsTheExpectedShare) {
  const StepScalars scalars = scalars_of(1, 0);
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    Array x(DType::fp32, 1 << 18);
    for (std::size_t i = 0; i < x.size(); ++i) x.set(i, 1.0f);
    in_lane(1, [&](Lane& lane) { dropout(lane, {p, 1, 0, &scalars}, x.view(), {}, x.view()); });
    double sum = 0, kept = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i], kept += x[i] != 0;
    const double n = static_cast<double>(x.size()), sigma = std::sqrt(n * p * (1 - p));
    EXPECT_NEAR(kept, n * (1 - p), 5 * sigma);
    EXPECT_NEAR(sum / n, 1.0, 5 * sigma / n / (1 - p));
  }
}

TEST(Dropout, ProbabilityZeroNeedsNoScalars) {
  for (const DType dtype : kDTypes) {
    Array x = Array::random(dtype, kOdd, 1), residual = Array::random(dtype, kOdd, 2), copy(dtype, kOdd),
          sum(dtype, kOdd), expected(dtype, kOdd);
    in_lane(2, [&](Lane& lane) {
      dropout(lane, {}, x.view(), {}, copy.view());
      dropout(lane, {}, x.view(), residual.view(), sum.view());
    });
    for (std::size_t i = 0; i < kOdd; ++i) expected.set(i, residual[i] + x[i]);
    EXPECT_TRUE(copy == x);
    EXPECT_TRUE(sum == expected);
  }
}

TEST(DropoutKernels, SameBitsOnBothInstructionSets) {
  const std::size_t n = 4096 + 23;
  // Numbers beyond 2^32 blocks, so that the counter's high half is used.
  const std::uint64_t index = (5ull << 34) + 8;
  const RandomStream stream{.seed = 99, .micro_batch = 1ull << 33, .site = 3};
  testing::expect_same_bits_on_both_isas(
      cpu::avx2::dropout_kernels_table, cpu::avx512::dropout_kernels_table, [&](const cpu::DropoutKernels& k) {
        std::vector<Array> out;
        for (std::size_t t = 0; t < 3; ++t) {
          const Array x = Array::random(kDTypes[t], n, 1), residual = Array::random(kDTypes[t], n, 2);
          Array a(kDTypes[t], n);
          k.dropout[t](stream, index, drop_threshold(0.3f), 1.5f, x.data(), residual.data(), a.data(), n);
          out.push_back(a);
          for (std::size_t i = 0; t == 0 && i < n; ++i)
            EXPECT_EQ(a[i] != residual[i], random_word(stream, index + i) >= drop_threshold(0.3f)) << i;
        }
        return out;
      });
}

}  // namespace
}  // namespace strata::device
