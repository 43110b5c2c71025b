#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "models/layers/blocks/block_attention.h"
#include "tests/device/arrays.h"

namespace strata::models {
namespace {

using device::DType;
using device::Lane;
using device::testing::Array;
using device::testing::in_lane;

// Eight query heads and two key heads of 3 elements are cut into eight shards, so that four shards read each key head.
constexpr std::size_t kKeysTokens = 5, kHeadDim = 3, kShards = 8, kSharers = 4, kKeysSize = kKeysTokens * 2 * kHeadDim,
                      kRowWidth = 3 * kHeadDim;

// The shards of one rank, and their rows.
struct RankOfKeys {
  RankOfKeys(std::size_t first, std::size_t count)
      : heads(Array::random(DType::bf16, count * kKeysTokens * kRowWidth, static_cast<unsigned>(first) + 1)),
        d_heads(DType::bf16, heads.size()),
        keys({kKeysTokens, kShards, kShards / kSharers, kHeadDim, {first, count, kShards}, DType::bf16}, save, work),
        saved(DType::fp32, save.bytes() / sizeof(float)),
        workspace(DType::fp32, work.bytes() / sizeof(float)),
        partial(DType::fp32, keys.crossing()),
        total(DType::bf16, keys.crossing()) {
    // Magnitudes differ, so that sums depend on their order.
    for (std::size_t v = 0; v < count; ++v)
      for (std::size_t i = 0; i < kKeysSize; ++i)
        keys.gradients(workspace.view(), v).as<float>()[i] =
            std::ldexp(std::sin(static_cast<float>((first + v) * 100 + i)), static_cast<int>(13 * v % 29));
  }
  // The keys and values in the rows of shard `v`.
  float in_rows(const Array& rows, std::size_t v, std::size_t i) const {
    const std::size_t width = 2 * kHeadDim;
    return rows[(v * kKeysTokens + i / width) * kRowWidth + kHeadDim + i % width];
  }
  // Element `i` of the keys and values that shard `v` attends to.
  float kept(std::size_t v, std::size_t i) {
    return device::to_float(keys.keys(saved.view(), v).as<device::bf16>()[i]);
  }

  Slots save, work;
  Array heads, d_heads;
  SharedKeys keys;
  Array saved, workspace, partial, total;
};

TEST(SharedKeysTest, ShardsReadTheKeysOfTheFirst) {
  RankOfKeys rank(0, kShards);
  EXPECT_TRUE(rank.keys.any());
  EXPECT_EQ(rank.keys.sharers(), kSharers);
  EXPECT_EQ(rank.keys.crossing(), 0u) << "all of them are here";
  in_lane(2, [&](Lane& lane) { rank.keys.leave(lane, rank.heads.view(), {rank.saved.view(), {}}, {}); });
  for (std::size_t v = 0; v < kShards; ++v) {
    EXPECT_EQ(rank.keys.owns(v), v % kSharers == 0);
    for (std::size_t i = 0; i < kKeysSize; ++i)
      EXPECT_EQ(rank.kept(v, i), rank.in_rows(rank.heads, v / kSharers * kSharers, i));
  }
}

// The test adds the partial sums of four ranks by the tree, as ranks that share a layer do. The keys and the gradients
// that the ranks then have are those of one rank.
TEST(SharedKeysTest, RanksHaveTheBitsOfOne) {
  RankOfKeys alone(0, kShards);
  in_lane(2, [&](Lane& lane) {
    alone.keys.leave(lane, alone.heads.view(), {alone.saved.view(), {}}, {});
    alone.keys.write_partial_gradients(lane, alone.workspace.view(), alone.d_heads.view(), {});
  });
  std::vector<RankOfKeys> ranks;
  for (std::size_t first = 0; first < kShards; first += 2) ranks.emplace_back(first, 2);
  const auto exchange = [&] {
    const std::size_t size = ranks[0].keys.crossing();
    for (std::size_t i = 0; i < size; ++i) {
      const auto of = [&](std::size_t rank) { return ranks[rank].partial[i]; };
      for (RankOfKeys& rank : ranks) rank.total.set(i, (of(0) + of(1)) + (of(2) + of(3)));
    }
  };
  const auto on_all = [&](auto&& call) {
    in_lane(2, [&](Lane& lane) {
      for (RankOfKeys& rank : ranks) call(lane, rank);
    });
  };
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t v = 0; v < 2; ++v) {
      for (std::size_t i = 0; i < kKeysTokens * kRowWidth; ++i)
        ranks[r].heads.set(v * kKeysTokens * kRowWidth + i, alone.heads[(2 * r + v) * kKeysTokens * kRowWidth + i]);
      for (std::size_t i = 0; i < kKeysSize; ++i) {
        RankOfKeys one(0, kShards);
        ranks[r].keys.gradients(ranks[r].workspace.view(), v).as<float>()[i] =
            one.keys.gradients(one.workspace.view(), 2 * r + v).as<float>()[i];
      }
    }
  EXPECT_EQ(ranks[0].keys.crossing(), 2 * kKeysSize);

  on_all([](Lane& lane, RankOfKeys& r) { r.keys.leave(lane, r.heads.view(), {r.saved.view(), {}}, r.partial.view()); });
  EXPECT_TRUE(std::signbit(ranks[1].partial[0]) && ranks[1].partial[0] == 0) << "-0, which keeps the sign of another";
  exchange();
  on_all([](Lane& lane, RankOfKeys& r) { r.keys.take(lane, r.total.view(), {r.saved.view(), {}}); });
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < kKeysSize; ++i)
      for (const std::size_t v : {0u, 1u})
        EXPECT_EQ(ranks[r].kept(v, i), alone.in_rows(alone.heads, r / 2 * kSharers, i));

  on_all([](Lane& lane, RankOfKeys& r) {
    r.keys.write_partial_gradients(lane, r.workspace.view(), r.d_heads.view(), r.partial.view());
  });
  exchange();
  on_all([](Lane& lane, RankOfKeys& r) { r.keys.take_gradients(lane, r.total.view(), r.d_heads.view()); });
  for (const std::size_t r : {0u, 2u})
    for (std::size_t i = 0; i < kKeysSize; ++i)
      EXPECT_EQ(ranks[r].in_rows(ranks[r].d_heads, 0, i), alone.in_rows(alone.d_heads, 2 * r, i)) << "rank " << r;
  for (std::size_t i = 0; i < ranks[1].d_heads.size(); ++i)
    EXPECT_EQ(ranks[1].d_heads[i], 0) << "it has no weights of keys";
}

TEST(SharedKeysTest, NothingIsSharedWithOneHeadPerShard) {
  Slots save, work;
  const SharedKeys keys({kKeysTokens, 8, 4, kHeadDim, {0, 4, 4}, DType::fp32}, save, work);
  EXPECT_FALSE(keys.any());
  EXPECT_TRUE(keys.owns(3));
  EXPECT_EQ(save.bytes() + work.bytes() + keys.crossing(), 0u);
}

}  // namespace
}  // namespace strata::models
