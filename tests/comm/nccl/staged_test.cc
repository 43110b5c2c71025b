// Host collectives for GPU lanes, through staging memory. Ranks are threads with GPUs of the fake of CUDA, in which a
// copy is work of the stream.
#include "comm/staged.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/memory.h"
#include "tests/comm/numbered_bytes.h"
#include "tests/comm/run_threads.h"

namespace strata::comm {
namespace {

using device::Arena;
using device::Lane;

// Sizes are even and often exceed the staging, which is then used repeatedly. Ends are often ends of ranks' shards.
ShardedRange range_of(int ranks) {
  const bool large = *rc::gen::inRange(0, 4) == 0;
  const std::size_t shard = 2 * *rc::gen::inRange<std::size_t>(1, large ? kStagedBytes / 2 : 3000);
  const auto bound = [&] {
    if (*rc::gen::arbitrary<bool>())
      return shard * *rc::gen::inRange<std::size_t>(0, static_cast<std::size_t>(ranks) + 1);
    return 2 * *rc::gen::inRange<std::size_t>(0, shard * static_cast<std::size_t>(ranks) / 2 + 1);
  };
  const std::size_t one = bound(), other = bound();
  return {shard, std::min(one, other), std::max(one, other)};
}

device::Device gpu_of(const World& world) {
  return {device::Kind::cuda, world.rank()};
}

TEST(Staged, GatherGivesEveryRankTheRange) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 4);
    const ShardedRange range = range_of(ranks);
    run_threads(ranks, [&](World& world) {
      Lane lane("gather", 1, world.rank(), world.abort_token(), gpu_of(world));
      const auto gather = world.open(lane);
      const Arena shard = world.allocate(range.shard_bytes, lane.device());
      const Arena out = world.allocate(range.bytes() + 1, lane.device());
      const std::size_t first = static_cast<std::size_t>(world.rank()) * range.shard_bytes;
      for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < range.shard_bytes; ++i) shard.data()[i] = value(0, first + i, round);
        gather->all_gather(range, shard.data(), out.data());
        lane.synchronize();
        for (std::size_t i = 0; i < range.bytes(); ++i)
          require(out.data()[i] == value(0, range.begin + i, round), "a gathered byte differs");
        require(out.data()[range.bytes()] == std::byte{}, "after the range");
      }
      const auto own = range.owned(world.rank());
      require(gather->sent().all_gather == 2 * own.bytes() * static_cast<std::uint64_t>(ranks - 1), "the bytes sent");
    });
  }));
}

// There is no wait between rounds: a round must not overwrite what the previous one still reads.
TEST(Staged, AllToAllGivesEveryRankItsPieceOfEach) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 4);
    const ShardedRange range = range_of(ranks);
    run_threads(ranks, [&](World& world) {
      Lane lane("reduce", 1, world.rank(), world.abort_token(), gpu_of(world));
      const auto reduce = world.open(lane);
      const auto own = range.owned(world.rank());
      constexpr int kRounds = 2;
      std::vector<Arena> in, staging;
      std::vector<std::vector<const std::byte*>> pieces(kRounds, std::vector<const std::byte*>(ranks));
      for (int round = 0; round < kRounds; ++round) {
        in.push_back(world.allocate(range.bytes() + 1, lane.device()));
        staging.push_back(world.allocate(static_cast<std::size_t>(ranks) * own.bytes() + 1, lane.device()));
        for (std::size_t i = 0; i < range.bytes(); ++i)
          in.back().data()[i] = value(world.rank(), range.begin + i, round);
      }
      for (std::size_t round = 0; round < kRounds; ++round) {
        reduce->all_to_all(range, in[round].data(), staging[round].data(), pieces[round].data());
        reduce->release();
      }
      lane.synchronize();
      for (int round = 0; round < kRounds; ++round)
        for (int r = 0; r < ranks; ++r)
          for (std::size_t i = 0; i < own.bytes(); ++i)
            require(pieces[static_cast<std::size_t>(round)][static_cast<std::size_t>(r)][i] ==
                        value(r, own.begin + i, round),
                    "a received byte differs");
      require(reduce->sent().all_to_all == kRounds * (range.bytes() - own.bytes()), "the bytes sent");
    });
  }));
}

TEST(Staged, BroadcastAndExchangeReachAll) {
  for (const std::size_t bytes : {std::size_t{2}, kStagedBytes / 2, kStagedBytes + 4098})
    run_threads(3, [&](World& world) {
      Lane lane("control", 1, world.rank(), world.abort_token(), gpu_of(world));
      const auto control = world.open(lane);
      constexpr std::size_t kMessage = 64;
      const Arena data = world.allocate(bytes, lane.device()), all = world.allocate(4 * kMessage, lane.device());
      for (int root = 0; root < 3; ++root) {
        for (std::size_t i = 0; i < bytes; ++i) data.data()[i] = value(world.rank(), i, root);
        for (std::size_t i = 0; i < kMessage; ++i) all.data()[i] = value(world.rank(), i, root);
        control->broadcast(data.data(), bytes, root);
        control->exchange(all.data(), kMessage, all.at(kMessage));
        lane.synchronize();
        for (std::size_t i = 0; i < bytes; ++i) require(data.data()[i] == value(root, i, root), "a byte of the root's");
        for (std::size_t i = 0; i < 3 * kMessage; ++i)
          require(all.at(kMessage)[i] == value(static_cast<int>(i / kMessage), i % kMessage, root), "a message's byte");
      }
    });
}

TEST(Staged, MessagesArriveInParts) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{2}, kStagedBytes / 2, kStagedBytes + 4098})
    run_threads(2, [&](World& world) {
      Lane lane("messages", 1, world.rank(), world.abort_token(), gpu_of(world));
      const auto messages = world.open(lane);
      const Arena data = world.allocate(bytes + 1, lane.device());
      for (int round = 0; round < 2; ++round) {
        const int from = round % 2;
        for (std::size_t i = 0; i < bytes; ++i) data.data()[i] = value(world.rank(), i, round);
        if (world.rank() == from)
          messages->send(data.data(), bytes, 1 - from);
        else
          messages->receive(data.data(), bytes, from);
        lane.synchronize();
        for (std::size_t i = 0; i < bytes; ++i) require(data.data()[i] == value(from, i, round), "a byte differs");
      }
      require(messages->sent().point_to_point == bytes && messages->sent().total() == bytes, "the bytes sent");
    });
}

}  // namespace
}  // namespace strata::comm
