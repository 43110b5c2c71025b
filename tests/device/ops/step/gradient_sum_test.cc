#include "device/ops/step/gradient_sum.h"

#include <limits>
#include <numeric>
#include <span>

#include "device/cpu/kernels/tables.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;

TEST(GradientSum, AddsPiecesInOrder) {
  const std::size_t n = 32768 + 64 + 37;
  for (const DType dtype : kDTypes)
    for (const std::size_t count : {std::size_t{1}, std::size_t{5}})
      for (const bool first : {false, true}) {
        std::vector<Array> pieces;
        std::vector<const std::byte*> pointers;
        for (std::size_t k = 0; k < count; ++k) {
          pieces.push_back(Array::random(dtype, n, 10 + static_cast<unsigned>(k)));
          pieces.back().set(3, -0.0f);
        }
        for (const Array& piece : pieces) pointers.push_back(piece.data());
        const auto run = [&](int threads) {
          Array sum = Array::random(DType::fp32, n, 1);
          in_lane(threads, [&](Lane& lane) { gradient_sum(lane, pointers, dtype, sum.view(), first); });
          return std::vector<Array>{sum};
        };
        testing::expect_same_bits_on_any_threads(run);
        Array expected = Array::random(DType::fp32, n, 1);
        for (std::size_t i = 0; i < n; ++i) {
          float sum = first ? 0.0f : expected[i];
          for (const Array& piece : pieces) sum += piece[i];
          expected.floats()[i] = sum;
        }
        EXPECT_TRUE(run(1)[0] == expected) << name_of(dtype) << " " << count << " pieces";
        EXPECT_TRUE(!first || !std::signbit(run(1)[0][3])) << "+0 + -0 is +0";
      }
}

// More pieces than one launch takes on a GPU, in memory that is not aligned for vectors.
TEST(GradientSum, ManyUnalignedPieces) {
  const std::size_t n = 300, count = 131;
  for (const DType dtype : kDTypes)
    for (const std::size_t offset : {0, 1}) {
      Array pieces = Array::random(dtype, count * n + offset, 1), sum(DType::fp32, n), expected(DType::fp32, n);
      std::vector<const std::byte*> pointers;
      for (std::size_t k = 0; k < count; ++k) pointers.push_back(pieces.data() + (offset + k * n) * size_of(dtype));
      in_lane(2, [&](Lane& lane) { gradient_sum(lane, pointers, dtype, sum.view(), true); });
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < count; ++k) expected.floats()[i] += pieces[offset + k * n + i];
      EXPECT_TRUE(sum == expected) << name_of(dtype) << " at " << offset;
    }
}

// This is the definition: runs span calls with any number of pieces. Each run is summed from +0, rounded, then added.
TEST(GradientSum, AddsRunsThatAreRoundedOnce) {
  const std::size_t n = 4096 + 37;
  for (const DType dtype : kDTypes)
    for (const std::size_t length : {2, 3, 5, 12})
      for (const std::size_t per_call : {1, 2, 4, 6, 12}) {
        const std::size_t count = std::lcm(length, per_call);
        std::vector<Array> pieces;
        std::vector<const std::byte*> pointers;
        for (std::size_t k = 0; k < count; ++k)
          pieces.push_back(Array::random(dtype, n, 10 + static_cast<unsigned>(k)));
        for (const Array& piece : pieces) pointers.push_back(piece.data());
        const bool partial = GradientRuns::needs_partial(length, per_call);
        const auto run = [&](int threads) {
          Array sum = Array::random(DType::fp32, n, 1), part = Array::random(DType::fp32, n, 2);
          in_lane(threads, [&](Lane& lane) {
            for (std::size_t k = 0; k < count; k += per_call)
              gradient_sum(lane, std::span(pointers).subspan(k, per_call), dtype, sum.view(), k == 0,
                           {length, k % length, partial ? part.view() : View{}});
          });
          return std::vector<Array>{sum};
        };
        testing::expect_same_bits_on_any_threads(run);
        Array expected(DType::fp32, n), once(dtype, 1);
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t begin = 0; begin < count; begin += length) {
            float sum = 0;
            for (std::size_t k = begin; k < begin + length; ++k) sum += pieces[k][i];
            once.set(0, sum);
            expected.floats()[i] += once[0];
          }
        EXPECT_TRUE(run(1)[0] == expected) << name_of(dtype) << " runs of " << length << ", " << per_call << " a call";
      }
}

// More pieces than one launch takes on a GPU, in runs with and without memory of their own, in memory that is not
// aligned for vectors.
TEST(GradientSum, ManyPiecesInRuns) {
  const std::size_t n = 300, count = 132;
  for (const DType dtype : kDTypes)
    for (const std::size_t length : {4, 33, 66, 132})
      for (const std::size_t offset : {0, 1}) {
        Array pieces = Array::random(dtype, count * n + offset, 1), sum(DType::fp32, n), part(DType::fp32, n);
        Array expected(DType::fp32, n), once(dtype, 1);
        std::vector<const std::byte*> pointers;
        for (std::size_t k = 0; k < count; ++k) pointers.push_back(pieces.data() + (offset + k * n) * size_of(dtype));
        in_lane(2, [&](Lane& lane) {
          gradient_sum(lane, pointers, dtype, sum.view(), true,
                       {length, 0, GradientRuns::needs_partial(length, count) ? part.view() : View{}});
        });
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t begin = 0; begin < count; begin += length) {
            float run = 0;
            for (std::size_t k = begin; k < begin + length; ++k) run += pieces[offset + k * n + i];
            once.set(0, run);
            expected.floats()[i] += once[0];
          }
        EXPECT_TRUE(sum == expected) << name_of(dtype) << " runs of " << length << " at " << offset;
      }
}

// A run's sum may exceed the range of the wire's numbers although no single gradient does.
TEST(GradientSum, ARunThatOverflowsIsInfinite) {
  Array piece(DType::fp16, 8), sum(DType::fp32, 8);
  for (std::size_t i = 0; i < 8; ++i) piece.set(i, 60000.0f);
  const std::byte* pointers[] = {piece.data(), piece.data()};
  in_lane(1, [&](Lane& lane) { gradient_sum(lane, pointers, DType::fp16, sum.view(), true, {2}); });
  EXPECT_TRUE(std::isinf(sum[0]));
  in_lane(1, [&](Lane& lane) { gradient_sum(lane, pointers, DType::fp16, sum.view(), true); });
  EXPECT_EQ(sum[0], 120000.0f);
}

// This is the definition: 64 strided partial sums, then a tree.
double block_sum(const Array& first, const Array* second, std::size_t begin) {
  double partial[64] = {};
  for (std::size_t i = 0; i < 4096; ++i) {
    float g = 0.0f + first[begin + i];
    if (second) g = g + (*second)[begin + i];
    partial[i % 64] += static_cast<double>(g) * static_cast<double>(g);
  }
  for (std::size_t width = 32; width > 0; width /= 2)
    for (std::size_t j = 0; j < width; ++j) partial[j] += partial[j + width];
  return partial[0];
}

TEST(GradientSquareSum, MatchesItsDefinitionToTheBit) {
  const std::size_t n = 131 * 4096;
  for (const DType dtype : kDTypes)
    for (const bool tied : {false, true}) {
      Array first = Array::random(dtype, n, 1), second = Array::random(dtype, n, 2);
      ExactSum expected;
      for (std::size_t begin = 0; begin < n; begin += 4096)
        expected.add(block_sum(first, tied ? &second : nullptr, begin));
      expected.normalize();
      for (const int threads : {1, 3}) {
        ExactSum total;
        in_lane(threads,
                [&](Lane& lane) { gradient_square_sum(lane, first.view(), tied ? second.view() : View{}, &total); });
        total.normalize();
        EXPECT_EQ(total.chunks, expected.chunks) << name_of(dtype) << " on " << threads;
        EXPECT_EQ(total.nonfinite, 0u);
      }
    }
}

TEST(GradientSquareSum, AddsUnalignedGradientsToTheTotal) {
  const std::size_t n = 5 * 4096;
  for (const DType dtype : kDTypes) {
    Array g = Array::random(dtype, n + 1, 1), moved(dtype, n);
    std::memcpy(moved.data(), g.data() + size_of(dtype), n * size_of(dtype));
    ExactSum expected, total;
    expected.add(-3.0);
    total.add(-3.0);
    for (std::size_t begin = 0; begin < n; begin += 4096) expected.add(block_sum(moved, nullptr, begin));
    in_lane(1, [&](Lane& lane) { gradient_square_sum(lane, g.view().sub(1, n), {}, &total); });
    EXPECT_EQ(total.round(), expected.round());
    EXPECT_EQ(total.uncarried, testing::kDevice.kind == Kind::cpu ? 7u : 6u);  // a merge counts
  }
}

TEST(GradientSquareSum, CountsNonFiniteValues) {
  Array g = Array::random(DType::fp32, 3 * 4096, 1);
  g.set(4100, std::numeric_limits<float>::infinity());
  ExactSum total;
  in_lane(1, [&](Lane& lane) { gradient_square_sum(lane, g.view(), {}, &total); });
  EXPECT_EQ(total.nonfinite, 1u);
  EXPECT_TRUE(std::isnan(total.round()));
}

TEST(GradientSumKernels, SameBitsOnBothInstructionSets) {
  testing::expect_same_bits_on_both_isas(
      cpu::avx2::gradient_sum_kernels_table, cpu::avx512::gradient_sum_kernels_table,
      [&](const cpu::GradientSumKernels& k) {
        std::vector<Array> out;
        for (std::size_t t = 0; t < 3; ++t)
          for (const float size : {1.0f, 1e-4f}) {
            const Array a = Array::random(kDTypes[t], 4096, 1, size), b = Array::random(kDTypes[t], 4096, 2, size);
            const double sums[] = {k.square_sum[t](a.data(), nullptr), k.square_sum[t](a.data(), b.data())};
            Array bits(DType::fp32, 4), sum = Array::random(DType::fp32, 500, 3);
            std::memcpy(bits.data(), sums, sizeof(sums));
            const std::byte* pieces[] = {a.data(), b.data()};
            k.add_pieces[t](pieces, 2, 7, sum.floats(), 499, false);
            Array runs = Array::random(DType::fp32, 500, 4), partial = Array::random(DType::fp32, 500, 5);
            const std::byte* four[] = {a.data(), b.data(), b.data(), a.data()};
            k.add_runs[t](four, 4, 7, 3, 1, partial.floats(), runs.floats(), 499, false);
            out.insert(out.end(), {bits, sum, runs, partial});
          }
        return out;
      });
}

}  // namespace
}  // namespace strata::device
