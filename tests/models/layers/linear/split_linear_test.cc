#include "models/layers/linear/split_linear.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "models/parameter.h"
#include "tests/device/arrays.h"

namespace strata::models {
namespace {

using device::DType;
using device::Lane;
using device::testing::Array;
using device::testing::in_lane;

constexpr std::size_t kSplitLinearRows = 24, kIn = 32, kOut = 64;

// Small integers, whose sums are exact in any order.
Array whole_numbers(DType dtype, std::size_t size, unsigned seed) {
  Array a(dtype, size);
  std::mt19937 engine(seed);
  for (std::size_t i = 0; i < size; ++i) a.set(i, static_cast<float>(engine() % 5) - 2);
  return a;
}

// A matrix [rows, columns] as a stack of `shards` matrices with the columns divided.
Array stacked(const Array& matrix, std::size_t rows, std::size_t shards) {
  Array out(matrix.dtype(), matrix.size());
  const std::size_t columns = matrix.size() / rows, width = columns / shards;
  for (std::size_t i = 0; i < matrix.size(); ++i)
    out.set((i % columns / width * rows + i / columns) * width + i % width, matrix[i]);
  return out;
}

struct Results {
  Array y, dx, dw, db;
};

// The layer in `shards` shards over the same W and b, with results in the order of the whole layer.
Results run(CutSide side, bool input_major, std::size_t shards, DType dtype) {
  const Array w = whole_numbers(dtype, kIn * kOut, 1), b = whole_numbers(dtype, kOut, 2);
  const bool outputs = side == CutSide::outputs;
  const std::vector<std::int64_t> shape =
      input_major ? std::vector<std::int64_t>{kIn, kOut} : std::vector<std::int64_t>{kOut, kIn};
  Parameter weight{"w", shape, 0, true, {}, false}, bias{"b", {kOut}, 0, true, {}, false};
  weight.slice = {outputs == input_major ? 1u : 0u, 1, shards};
  bias.slice = {0, 1, outputs ? shards : 1};
  // The gaps of 256 elements between tensors are never read.
  constexpr std::size_t kStride = kIn * kOut + 256;
  Array parameters = Array::random(dtype, 2 * shards * kStride, 9), gradients(dtype, 2 * shards * kStride);
  SplitLinear::Offsets offsets;
  const auto spread = [&](const Parameter& p, const Array& values, std::size_t v, std::size_t at) {
    for (std::size_t i = 0; i < p.piece_size(v); ++i) parameters.set(at + i, values[p.piece(v).full_index(i)]);
  };
  const auto gather = [&](const Parameter& p, Array& values, std::size_t v, std::size_t at) {
    for (std::size_t i = 0; i < p.piece_size(v); ++i) values.set(p.piece(v).full_index(i), gradients[at + i]);
  };
  const auto bias_at = [&](std::size_t v) { return (2 * (outputs ? v : 0) + 1) * kStride; };
  for (std::size_t v = 0; v < shards; ++v) {
    spread(weight, w, v, 2 * v * kStride);
    if (v == 0 || outputs) spread(bias, b, v, bias_at(v));
    offsets.shards.push_back({{outputs ? kOut / shards : kOut, 2 * v * kStride, bias_at(v)}});
  }
  if (!outputs) offsets.bias = bias_at(0);
  const SplitLinear layer(side, {kSplitLinearRows, kIn, {}, true, input_major, dtype}, offsets);
  EXPECT_EQ(layer.out(), kOut);
  const Array x = whole_numbers(dtype, kSplitLinearRows * kIn, 3),
              dy = whole_numbers(dtype, kSplitLinearRows * kOut, 4);
  Array in = outputs ? x : stacked(x, kSplitLinearRows, shards),
        up = outputs ? stacked(dy, kSplitLinearRows, shards) : dy;
  Results r{Array(dtype, kSplitLinearRows * kOut), Array(dtype, kSplitLinearRows * kIn), Array(dtype, kIn * kOut),
            Array(dtype, kOut)};
  Array y(dtype, kSplitLinearRows * kOut), dx(dtype, kSplitLinearRows * kIn),
      scratch(DType::fp32, layer.scratch_bytes(2) / 4 + 16);
  in_lane(2, [&](Lane& lane) {
    layer.forward(lane, {parameters.view()}, in.view(), y.view(), scratch.view());
    layer.backward(lane, {parameters.view()}, in.view(), up.view(), dx.view(), {gradients.view()}, scratch.view());
  });
  for (std::size_t v = 0; v < shards; ++v) {
    gather(weight, r.dw, v, 2 * v * kStride);
    if (v == 0 || outputs) gather(bias, r.db, v, bias_at(v));
  }
  const auto from_stack = [&](const Array& stack, Array& matrix) {
    const std::size_t columns = matrix.size() / kSplitLinearRows, width = columns / shards;
    for (std::size_t i = 0; i < matrix.size(); ++i)
      matrix.set(i, stack[(i % columns / width * kSplitLinearRows + i / columns) * width + i % width]);
  };
  outputs ? from_stack(y, r.y) : void(r.y = y);
  outputs ? void(r.dx = dx) : from_stack(dx, r.dx);
  return r;
}

TEST(SplitLinear, MatchesTheCompleteLayer) {
  for (const CutSide side : {CutSide::outputs, CutSide::inputs})
    for (const bool input_major : {false, true})
      for (const DType dtype : {DType::fp32, DType::bf16}) {
        const Results full = run(side, input_major, 1, dtype);
        for (const std::size_t shards : {2u, 4u}) {
          const Results split = run(side, input_major, shards, dtype);
          const auto what = ::testing::Message() << (side == CutSide::outputs ? "outputs" : "inputs") << " in "
                                                 << shards << (input_major ? ", [in, out]" : ", [out, in]");
          EXPECT_TRUE(split.y == full.y) << what;
          EXPECT_TRUE(split.dx == full.dx) << what;
          EXPECT_TRUE(split.dw == full.dw) << what;
          EXPECT_TRUE(split.db == full.db) << what;
        }
      }
}

TEST(SplitLinear, ScratchFitsTheLargestShard) {
  const SplitLinear narrow = Linear({kSplitLinearRows, 16, {{16, 0}}, false, false, DType::bf16});
  const SplitLinear wide = Linear({kSplitLinearRows, 64, {{48, 0, 8192}, {80, 4096, 8448}}, true, false, DType::bf16});
  ASSERT_LT(narrow.scratch_bytes(1), wide.scratch_bytes(1));
  const SplitLinear* const both[] = {&narrow, &wide};
  const SplitLinear* const turned[] = {&wide, &narrow};
  EXPECT_EQ(scratch_bytes(both, 1), wide.scratch_bytes(1));
  EXPECT_EQ(scratch_bytes(turned, 1), wide.scratch_bytes(1));
}

}  // namespace
}  // namespace strata::models
