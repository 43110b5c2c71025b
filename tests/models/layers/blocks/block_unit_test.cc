#include "models/layers/blocks/block_unit.h"

#include <gtest/gtest.h>

namespace strata::models {
namespace {

using device::DType;

// Four products of `width` columns around an attention of `heads` heads.
BlockOperations operations(std::size_t width, std::size_t heads) {
  const RunShape run{1, 16, DType::bf16, 2};
  const auto linear = [&](std::size_t out) {
    return Linear({run.tokens(), 16, {{out, 0, 4096}, {out, 2048, 4352}}, true, false, run.dtype});
  };
  return {run.tokens(), 16,         run.tokens(),  run.dtype, run.threads, {}, BlockAttention({heads, heads, 8}, run),
          linear(8),    linear(16), linear(width), linear(24)};
}

// Scratch is as large as the largest need of any call.
TEST(BlockOperations, ScratchFitsTheLargestCall) {
  const BlockOperations attends = operations(8, 64), multiplies = operations(std::size_t{1} << 15, 1);
  const std::size_t attention = attends.attention.scratch_bytes(2), product = multiplies.up.scratch_bytes(2);
  ASSERT_GT(attention, scratch_bytes(attends.linears(), 2));
  ASSERT_GT(product, multiplies.attention.scratch_bytes(2));
  EXPECT_EQ(attends.scratch_bytes(), attention);
  EXPECT_EQ(multiplies.scratch_bytes(), product);
}

TEST(BlockOperations, ListsTheProductOfEachPart) {
  const BlockOperations block = operations(32, 2);
  const std::size_t want[] = {2 * 8, 2 * 16, 2 * 32, 2 * 24};
  for (std::size_t part = 0; part < 4; ++part) EXPECT_EQ(block.linears()[part]->out(), want[part]) << part;
}

}  // namespace
}  // namespace strata::models
