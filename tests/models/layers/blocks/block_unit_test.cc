#include "models/layers/blocks/block_unit.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "models/adapter.h"
#include "models/files/config.h"
#include "tests/models/families/tiny_model.h"
#include "tests/models/unit_runner.h"

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

// The first call of a sequence leaves DoRA's scales (if outputs are cut) or squared norms (if inputs are) to the
// others.
TEST(BlockUnit, KeepsTheNormsOfDoraInVirtualShards) {
  RunShape run{.batch = 1, .seq = 1, .dtype = DType::fp32, .threads = 1, .training = false, .cache = 8};
  run.shards = {0, 2, 2};
  const auto made = [&] { return make_model(Config::parse(testing::tiny("llama"), "config.json"), run); };
  const std::size_t plain = made()->units[1]->bytes().cache / sizeof(float);
  for (const char* target : {"q_proj", "v_proj", "up_proj", "o_proj", "down_proj"}) {
    SCOPED_TRACE(target);
    run.adapter =
        std::make_shared<const Adapter>(Adapter{.rank = 2, .alpha = 4, .target_modules = {{target}, {}}, .dora = true});
    const auto model = made();
    const Unit& unit = *model->units[1];
    testing::UnitRunner runner(unit, run, 32, model.get());
    for (testing::Buffer* pool : {&runner.parameters, &runner.frozen})
      for (std::size_t i = 0; i < pool->size(); ++i) pool->set(i, runner.uniform(0.3));
    testing::Buffer cache(unit.bytes().cache / sizeof(float), DType::fp32);
    const auto row = [&](std::uint32_t first) {
      runner.cache = {cache.view(), first, 1};
      runner.positions[0] = first;
      runner.forward();
      EXPECT_TRUE(cache.guard_is_whole());
      return runner.y.bits();
    };
    (void)row(0);
    const std::vector<std::byte> second = row(1);
    ASSERT_GT(cache.size(), plain);
    for (std::size_t i = plain; i < cache.size(); ++i) cache.set(i, 2 * cache[i]);
    EXPECT_NE(row(1), second) << "computed again";
    (void)row(0);
    EXPECT_EQ(row(1), second);
  }
}

}  // namespace
}  // namespace strata::models
