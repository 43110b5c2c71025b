#include "device/cpu/kernels/tables.h"
#include "device/ops/elementwise.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;

float tree(const Array& partials, std::size_t size, std::size_t i, std::size_t first, std::size_t count) {
  if (count == 1) return partials[first * size + i];
  return tree(partials, size, i, first, count / 2) + tree(partials, size, i, first + count / 2, count / 2);
}

struct TreeSumCase {
  std::size_t rows, columns;
  bool biased;
};

Array sum_in(Device device, DType dtype, std::size_t count, const TreeSumCase& c, int threads) {
  const std::size_t size = c.rows * c.columns;
  Array partials = Array::random(DType::fp32, count * size, 3), bias = Array::random(dtype, c.columns, 4),
        out(dtype, size);
  in_lane(
      threads,
      [&](Lane& lane) {
        tree_sum(lane, count, partials.view(), c.biased ? ConstView(bias.view()) : ConstView{}, out.view());
      },
      device);
  return out;
}

TEST(TreeSum, AddsByATreeThenTheBiasAndRoundsOnce) {
  for (const DType dtype : testing::kDTypes)
    for (const std::size_t count : {1u, 2u, 4u, 8u, 32u})
      for (const TreeSumCase& c : {TreeSumCase{1, 1, true}, TreeSumCase{3, 37, true}, TreeSumCase{129, 260, true},
                                   TreeSumCase{7, 1029, false}}) {
        const std::size_t size = c.rows * c.columns;
        const Array partials = Array::random(DType::fp32, count * size, 3), bias = Array::random(dtype, c.columns, 4);
        const Array out = sum_in(testing::kDevice, dtype, count, c, 3);
        for (std::size_t i = 0; i < size; ++i) {
          const float sum = tree(partials, size, i, 0, count);
          Array expected(dtype, 1);
          expected.set(0, c.biased ? sum + bias[i % c.columns] : sum);
          ASSERT_EQ(out[i], expected[0]) << name_of(dtype) << ", " << count << " partials, element " << i;
        }
      }
}

TEST(TreeSum, SameBitsOnAnyThreadsAndOnTheCpu) {
  const TreeSumCase c{300, 263, true};
  const auto on = [&](Device device, int threads) {
    return std::vector<Array>{sum_in(device, DType::bf16, 8, c, threads), sum_in(device, DType::fp32, 16, c, threads)};
  };
  testing::expect_same_bits_on_any_threads([&](int threads) { return on(testing::kDevice, threads); });
  testing::expect_bits_of_the_cpu([&](Device device) { return on(device, 2); });
}

// The tree over all partials equals the tree over its halves' trees. Ranks rely on this.
TEST(TreeSum, SumsOfHalvesHaveTheBitsOfTheTotal) {
  const std::size_t size = 1000, count = 8;
  Array partials = Array::random(DType::fp32, count * size, 5), halves(DType::fp32, 2 * size), both(DType::bf16, size),
        whole(DType::bf16, size);
  in_lane(2, [&](Lane& lane) {
    for (std::size_t half = 0; half < 2; ++half)
      tree_sum(lane, count / 2, partials.view().sub(half * count / 2 * size, count / 2 * size), {},
               halves.view().sub(half * size, size));
    tree_sum(lane, 2, halves.view(), {}, both.view());
    tree_sum(lane, count, partials.view(), {}, whole.view());
  });
  EXPECT_TRUE(both == whole);
}

// The pieces of an all-to-all lie in several places.
TEST(TreeSum, PiecesHaveTheBitsOfAStack) {
  const std::size_t rows = 37, columns = 29, size = rows * columns;
  for (const DType dtype : testing::kDTypes)
    for (const std::size_t count : {1u, 2u, 8u, 64u}) {
      Array partials = Array::random(DType::fp32, count * size, 3), bias = Array::random(dtype, columns, 4);
      Array stacked(dtype, size), out(dtype, size);
      std::vector<Array> apart;
      for (std::size_t p = 0; p < count; ++p) {
        apart.emplace_back(DType::fp32, size);
        for (std::size_t i = 0; i < size; ++i) apart[p].set(i, partials[p * size + i]);
      }
      std::vector<const std::byte*> pieces;
      for (Array& one : apart) pieces.push_back(one.view().data);
      in_lane(
          2,
          [&](Lane& lane) {
            tree_sum(lane, count, partials.view(), bias.view(), stacked.view());
            tree_sum_of_pieces(lane, pieces, bias.view(), out.view());
          },
          testing::kDevice);
      EXPECT_TRUE(out == stacked) << name_of(dtype) << ", " << count << " pieces";
    }
}

TEST(TreeSum, MayOverwriteTheFirstPartial) {
  const std::size_t size = 70000;
  Array partials = Array::random(DType::fp32, 4 * size, 6);
  const Array before = partials;
  in_lane(3, [&](Lane& lane) { tree_sum(lane, 4, partials.view(), {}, partials.view().sub(0, size)); });
  for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(partials[i], tree(before, size, i, 0, 4)) << i;
}

TEST(TreeSumKernels, SameBitsOnBothInstructionSets) {
  const std::size_t n = 1000 + 13;
  Array partials = Array::random(DType::fp32, 1024 * n, 7);
  testing::expect_same_bits_on_both_isas(
      cpu::avx2::tree_sum_kernels_table, cpu::avx512::tree_sum_kernels_table, [&](const cpu::TreeSumKernels& k) {
        std::vector<Array> out;
        for (int t = 0; t < 3; ++t) {
          Array bias = Array::random(testing::kDTypes[t], n, 8), sum(testing::kDTypes[t], n);
          k.tree_sum[t](partials.floats(), 1024, n, bias.data(), sum.data(), n);
          out.push_back(sum);
        }
        return out;
      });
}

}  // namespace
}  // namespace strata::device
