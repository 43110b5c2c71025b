#include "device/ops/elementwise.h"

#include <limits>

#include "device/cpu/kernels/tables.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;

constexpr float kElementwiseInf = std::numeric_limits<float>::infinity();
// Enough elements for several tasks and an odd tail.
constexpr std::size_t kElementwiseOdd = 3 * 32768 + 37;

// Random bits, for every class of float, with halfway cases of both 16-bit formats.
Array any_floats(std::size_t size) {
  Array a(DType::fp32, size);
  std::mt19937 engine(7);
  for (std::size_t i = 0; i < size; ++i) {
    auto bits = static_cast<std::uint32_t>(engine());
    if (i % 4 == 1) bits = (bits & 0xffff0000u) | 0x8000u;                     // halfway in bf16
    if (i % 4 == 2) bits = (bits & 0x8fffe000u) | 0x30000000u | 0x1000u;       // halfway in fp16
    if (i % 4 == 3) bits = (bits & 0x807fffffu) | ((100u + bits % 16) << 23);  // subnormal in fp16
    a.floats()[i] = std::bit_cast<float>(bits);
  }
  const float special[] = {0.0f,      -0.0f,    kElementwiseInf, -kElementwiseInf, 65504.0f,
                           65519.99f, 65520.0f, 3.4e38f,         1e-45f,           -1e-45f};
  for (std::size_t i = 0; i < std::size(special) && i < size; ++i) a.floats()[i] = special[i];
  return a;
}

// NaN only has to stay NaN, because hardware keeps its payload.
void expect_equal_floats(float a, float b) {
  if (std::isnan(b)) {
    EXPECT_TRUE(std::isnan(a));
  } else {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)) << a << " for " << b;
  }
}

TEST(Cast, RoundsOnceToEveryDType) {
  const Array source = any_floats(kElementwiseOdd);
  for (const DType middle : kDTypes)
    for (const DType last : kDTypes) {
      Array from = source, a(middle, kElementwiseOdd), b(last, kElementwiseOdd);
      in_lane(3, [&](Lane& lane) {
        cast(lane, from.view(), a.view());
        cast(lane, a.view(), b.view());
      });
      for (std::size_t i = 0; i < kElementwiseOdd; ++i) {
        Array expected(middle, 1);
        expected.set(0, source[i]);
        expect_equal_floats(a[i], expected[0]);
        Array again(last, 1);
        again.set(0, expected[0]);
        expect_equal_floats(b[i], again[0]);
        if (::testing::Test::HasFailure()) FAIL() << name_of(middle) << ", then " << name_of(last) << ", at " << i;
      }
    }
}

TEST(Cast, WidensEvery16BitNumber) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    Array all(dtype, 1 << 16), wide(DType::fp32, 1 << 16);
    for (std::uint32_t i = 0; i < 1 << 16; ++i) std::memcpy(all.data() + 2 * i, &i, 2);
    in_lane(1, [&](Lane& lane) { cast(lane, all.view(), wide.view()); });
    for (std::size_t i = 0; i < all.size(); ++i) expect_equal_floats(wide[i], all[i]);
  }
}

// There are several tasks, and gaps that must not change.
TEST(Cast, CastsOnlyTheGivenColumnsAndRoundsOnce) {
  constexpr std::size_t kRows = 700, kColumns = 130, kFrom = 131, kTo = 140;
  const Array source = any_floats(kRows * kFrom);
  for (const DType first : kDTypes)
    for (const DType last : kDTypes) {
      Array from(first, kRows * kFrom), to(last, kRows * kTo);
      for (std::size_t i = 0; i < kRows * kFrom; ++i) from.set(i, source[i]);
      for (std::size_t i = 0; i < kRows * kTo; ++i) to.set(i, 7);
      in_lane(3, [&](Lane& lane) { cast_columns(lane, kRows, kColumns, kFrom, from.view(), kTo, to.view()); });
      for (std::size_t row = 0; row < kRows; ++row)
        for (std::size_t i = 0; i < kTo; ++i) {
          Array expected(last, 1);
          expected.set(0, i < kColumns ? from[row * kFrom + i] : 7);
          expect_equal_floats(to[row * kTo + i], expected[0]);
        }
    }
}

TEST(Zero, SetsEveryByte) {
  Array a = Array::random(DType::bf16, kElementwiseOdd, 1);
  in_lane(3, [&](Lane& lane) { zero(lane, a.view()); });
  EXPECT_TRUE(a == Array(DType::bf16, kElementwiseOdd));
}

TEST(Add, AddsInFp32) {
  for (const DType dtype : kDTypes) {
    Array from = Array::random(dtype, kElementwiseOdd, 1), to = Array::random(DType::fp32, kElementwiseOdd, 2);
    const Array before = to;
    in_lane(3, [&](Lane& lane) { add(lane, from.view(), to.view()); });
    for (std::size_t i = 0; i < kElementwiseOdd; ++i)
      ASSERT_EQ(to[i], before[i] + from[i]) << name_of(dtype) << " " << i;
  }
}

TEST(Scale, RoundsOnceAndMayBeInPlace) {
  for (const DType t : testing::kDTypes) {
    const Array x = Array::random(t, 1003, 5);
    Array out = x;
    in_lane(3, [&](Lane& lane) { scale(lane, out.view(), 0.7f, out.view()); });
    Array expected(t, x.size());
    for (std::size_t i = 0; i < x.size(); ++i) expected.set(i, x[i] * 0.7f);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], expected[i]) << name_of(t) << " at " << i;
  }
}

TEST(CountNonfinite, CountsInfinitiesAndNaN) {
  for (const DType dtype : kDTypes) {
    Array x = Array::random(dtype, kElementwiseOdd, 1);
    const std::size_t places[] = {0, 15, 16, 40000, kElementwiseOdd - 1};
    const float values[] = {kElementwiseInf, -kElementwiseInf, std::nanf(""), -std::nanf(""), kElementwiseInf};
    for (int i = 0; i < 5; ++i) x.set(places[i], values[i]);
    std::uint64_t count = 100;
    in_lane(3, [&](Lane& lane) { count_nonfinite(lane, x.view(), &count); });
    EXPECT_EQ(count, 105u) << name_of(dtype);
  }
}

TEST(ColumnSum, SumsRows) {
  struct Shape {
    std::size_t rows, columns, stride;
  };
  for (const DType dtype : kDTypes)
    for (const Shape s : {Shape{1, 1, 1}, Shape{5, 37, 40}, Shape{700, 1029, 1030}, Shape{0, 3, 3}}) {
      Array x = Array::random(dtype, s.rows * s.stride + 1, 3), workspace(DType::fp32, 0);
      workspace = Array(DType::fp32, column_sum_workspace(s.rows, s.columns) / 4);
      for (const DType out_dtype : {dtype, DType::fp32}) {
        const auto run = [&](int threads) {
          Array out = Array::random(out_dtype, s.columns, 4);
          in_lane(threads, [&](Lane& lane) {
            column_sum(lane, s.rows, s.columns, s.stride, x.view(), out.view(), workspace.view());
          });
          return std::vector<Array>{out};
        };
        testing::expect_same_bits_on_any_threads(run);
        const Array out = run(1)[0];
        for (std::size_t j = 0; j < s.columns; ++j) {
          double sum = 0, size = 0;
          for (std::size_t r = 0; r < s.rows; ++r) {
            sum += x[r * s.stride + j];
            size += std::abs(x[r * s.stride + j]);
          }
          ASSERT_NEAR(out[j], sum, testing::tolerance(out_dtype, sum, size)) << name_of(dtype) << " column " << j;
        }
      }
    }
}

TEST(ElementwiseKernels, SameBitsOnBothInstructionSets) {
  const std::size_t n = 4096 + 13;
  const Array source = any_floats(n);
  testing::expect_same_bits_on_both_isas(cpu::avx2::elementwise_kernels_table, cpu::avx512::elementwise_kernels_table,
                                         [&](const cpu::ElementwiseKernels& k) {
                                           std::vector<Array> out;
                                           for (int t = 0; t < 3; ++t) {
                                             Array narrow(kDTypes[t], n), wide(DType::fp32, n),
                                                 sums = Array::random(DType::fp32, n, 5);
                                             k.cast[0][t](source.data(), narrow.data(), n);
                                             k.cast[t][0](narrow.data(), wide.data(), n);
                                             const Array finite = Array::random(kDTypes[t], n, 6);
                                             k.add[t](finite.data(), sums.floats(), n);
                                             const Array other = Array::random(kDTypes[t], n, 7);
                                             Array pair(kDTypes[t], n);
                                             k.sum[t](finite.data(), other.data(), pair.data(), n);
                                             Array columns(DType::fp32, 41), rounded(kDTypes[t], 41);
                                             k.column_sum[t](finite.data(), 90, 41, 45, columns.floats());
                                             k.add_partials[t](sums.floats(), 7, 50, rounded.data(), 41);
                                             Array count(DType::fp32, 1);
                                             count.set(0, static_cast<float>(k.count_nonfinite[t](narrow.data(), n)));
                                             out.insert(out.end(), {narrow, wide, sums, pair, columns, rounded, count});
                                           }
                                           return out;
                                         });
}

}  // namespace
}  // namespace strata::device
