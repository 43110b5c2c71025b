#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/host_work.h"
#include "tests/comm/numbered_bytes.h"
#include "tests/comm/run_threads.h"

namespace strata::comm {
namespace {

using device::Arena;
using device::Event;
using device::Lane;

ShardedRange any_range(int ranks) {
  const std::size_t shard = *rc::gen::inRange<std::size_t>(1, 5000);
  const std::size_t flat = shard * static_cast<std::size_t>(ranks);
  const std::size_t begin = *rc::gen::inRange<std::size_t>(0, flat + 1);
  return {shard, begin, *rc::gen::inRange<std::size_t>(begin, flat + 1)};
}

TEST(Threads, GatherGivesEveryRankTheRange) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 6);
    const ShardedRange range = any_range(ranks);
    const bool in_place = *rc::gen::arbitrary<bool>();
    run_threads(ranks, [&](World& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      const Arena arena = world.allocate(range.shard_bytes + range.bytes() + 1);
      Lane lane("gather", 1 + world.rank() % 2, world.rank(), world.abort_token());
      const auto gather = world.open(lane);
      const auto own = range.owned(world.rank());
      // In place: the piece lies where it belongs in `out`, so the shard starts some way before or after it.
      std::byte* const out = arena.at(range.shard_bytes);
      std::byte* const piece =
          in_place ? out + (own.begin - range.begin) : arena.at(0) + (own.begin % range.shard_bytes);
      std::byte* const shard = own.bytes() ? piece - (own.begin - rank * range.shard_bytes) : nullptr;
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < own.bytes(); ++i) piece[i] = value(0, own.begin + i, round);
        gather->all_gather(range, shard, out);
        lane.synchronize();
        for (std::size_t i = 0; i < range.bytes(); ++i)
          require(out[i] == value(0, range.begin + i, round), "a gathered byte differs");
      }
      const std::uint64_t others = static_cast<std::uint64_t>(world.size() - 1);
      require(gather->sent().all_gather == 3 * others * own.bytes(), "all_gather counts other bytes");
      require(gather->sent().total() == gather->sent().all_gather, "bytes of another kind were counted");
    });
  }));
}

// Two groups share one channel, of neighbours and of distant ranks, with pieces in another order than the world's
// ranks. Gathered data is in the order of pieces, and data to be summed is in the order of ranks.
TEST(Threads, GroupsExchangeAmongThemselves) {
  run_threads(4, [](World& world) {
    const int rank = world.rank();
    Lane lane("groups", 1, rank, world.abort_token());
    const std::vector<std::vector<int>> all = {rank < 2 ? std::vector{0, 1} : std::vector{2, 3},
                                               rank % 2 ? std::vector{3, 1} : std::vector{2, 0},
                                               {0, 2, 1, 3}};
    for (const std::vector<int>& members : all) {
      const auto index = static_cast<int>(std::ranges::find(members, rank) - members.begin());
      const auto communicator = world.open(lane, {members, index});
      const std::size_t n = members.size(), piece = 6;
      const ShardedRange range{piece, 0, n * piece};
      const Arena arena = world.allocate(3 * n * piece);
      std::byte *const out = arena.at(0), *const in = arena.at(n * piece), *const staging = arena.at(2 * n * piece);
      for (int round = 0; round < 3; ++round) {
        const auto at = static_cast<std::size_t>(index) * piece;
        for (std::size_t i = 0; i < piece; ++i) out[at + i] = value(rank, i, round);
        for (std::size_t i = 0; i < n * piece; ++i) in[i] = value(rank, i, round + 7);
        communicator->all_gather(range, out + at, out);
        std::vector<const std::byte*> pieces(n);
        communicator->all_to_all(range, in, staging, pieces.data());
        lane.synchronize();
        std::vector<int> sorted = members;
        std::ranges::sort(sorted);
        for (std::size_t m = 0; m < n; ++m)
          for (std::size_t i = 0; i < piece; ++i) {
            require(out[m * piece + i] == value(members[m], i, round), "a gathered byte differs");
            require(pieces[m][i] == value(sorted[m], at + i, round + 7), "a byte to be summed differs");
          }
        communicator->release();
        std::vector<std::byte> told(n);
        const auto mine = static_cast<std::byte>(10 * round + rank);
        communicator->exchange(&mine, 1, told.data());
        lane.synchronize();
        for (std::size_t m = 0; m < n; ++m)
          require(told[m] == static_cast<std::byte>(10 * round + members[m]), "an exchanged byte differs");
        const int root = static_cast<int>(n) - 1;
        if (index == root) out[0] = value(rank, 0, round + 9);
        communicator->broadcast(out, 1, root);
        lane.synchronize();
        require(out[0] == value(members[n - 1], 0, round + 9), "a byte of the root differs");
      }
    }
  });
}

TEST(Threads, AllToAllGivesEveryRankItsPieceOfAll) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 6);
    const ShardedRange range = any_range(ranks);
    run_threads(ranks, [&](World& world) {
      const auto own = range.owned(world.rank());
      const auto size = static_cast<std::size_t>(world.size());
      const Arena arena = world.allocate(range.bytes() + 1);
      Arena staging = world.allocate(size * range.shard_bytes);
      Lane lane("reduce", 1, world.rank(), world.abort_token());
      const auto reduce = world.open(lane);
      std::vector<const std::byte*> pieces(size);
      for (int round = 0; round < 3; ++round) {
        // The buffer is written right after the release, so that a rank that still reads the old bytes is detected.
        for (std::size_t i = 0; i < range.bytes(); ++i) arena.data()[i] = value(world.rank(), range.begin + i, round);
        reduce->all_to_all(range, arena.data(), staging.data(), pieces.data());
        lane.synchronize();
        for (int r = 0; r < world.size(); ++r)
          for (std::size_t i = 0; i < own.bytes(); ++i)
            require(pieces[static_cast<std::size_t>(r)][i] == value(r, own.begin + i, round), "a byte differs");
        reduce->release();
        lane.synchronize();
      }
      require(reduce->sent().all_to_all == 3 * (range.bytes() - own.bytes()), "all_to_all counts other bytes");
    });
  }));
}

TEST(Threads, BroadcastAndExchange) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 6), root = *rc::gen::inRange(0, ranks);
    const std::size_t bytes = *rc::gen::inRange<std::size_t>(0, 3'000'000);
    const std::size_t message = *rc::gen::inRange<std::size_t>(1, Communicator::kMaxExchange + 1);
    run_threads(ranks, [&](World& world) {
      const auto size = static_cast<std::size_t>(world.size());
      const Arena arena = world.allocate(bytes + 1);
      Lane lane("control", 2, world.rank(), world.abort_token());
      const auto control = world.open(lane);
      std::vector<std::byte> mine(message), all(message * size);
      for (int round = 0; round < 3; ++round) {
        std::memset(arena.data(), world.rank() + 10 * round, bytes);
        std::memset(mine.data(), world.rank() + 100 * round, message);
        control->broadcast(arena.data(), bytes, root);
        control->exchange(mine.data(), message, all.data());
        lane.synchronize();
        for (std::size_t i = 0; i < bytes; ++i)
          require(arena.data()[i] == static_cast<std::byte>(root + 10 * round), "a byte of the broadcast differs");
        for (std::size_t i = 0; i < all.size(); ++i)
          require(all[i] == static_cast<std::byte>(i / message + static_cast<std::size_t>(100 * round)), "exchange");
      }
      const std::uint64_t others = size - 1;
      require(control->sent().broadcast == (world.rank() == root ? 3 * bytes * others : 0), "broadcast's bytes");
      require(control->sent().consensus == 3 * message * others, "exchange's bytes");
    });
  }));
}

// As in a step, parameters are gathered while gradients of an earlier unit are summed, and events order the lanes.
TEST(Threads, GatherAndReduceLanesAtOnce) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    run_threads(ranks, [](World& world) {
      const auto size = static_cast<std::size_t>(world.size());
      constexpr std::size_t kShard = 40'000;
      const ShardedRange range{kShard, 0, kShard * size};
      const Arena gather_memory = world.allocate(kShard + kShard * size);
      const Arena reduce_memory = world.allocate(kShard * size);
      std::vector<std::byte> sum(kShard);
      std::vector<const std::byte*> pieces(size);
      Lane gather_lane("gather", 1, world.rank(), world.abort_token());
      Lane reduce_lane("reduce", 1, world.rank(), world.abort_token());
      const auto gather = world.open(gather_lane), reduce = world.open(reduce_lane);
      Event reduced, updated;
      std::byte* const shard = gather_memory.at(0);
      std::byte* const gathered = gather_memory.at(kShard);
      std::memset(shard, 1, kShard);
      for (int round = 0; round < 20; ++round) {
        gather->all_gather(range, shard, gathered);
        host_work(reduce_lane, [in = reduce_memory.data(), bytes = range.bytes(), round](device::cpu::Team&) {
          std::memset(in, round, bytes);
        });
        reduce->all_to_all(range, reduce_memory.data(), nullptr, pieces.data());
        reduce_lane.wait(updated);
        host_work(reduce_lane, [&](device::cpu::Team&) {
          for (std::size_t i = 0; i < kShard; ++i) {
            auto total = std::to_integer<unsigned>(pieces[0][i]);
            for (std::size_t r = 1; r < size; ++r) total += std::to_integer<unsigned>(pieces[r][i]);
            sum[i] = static_cast<std::byte>(total);
          }
        });
        reduce->release();
        reduce_lane.record(reduced);
        gather_lane.wait(reduced);
        // This is the update: the shard changes as soon as this rank's gather has ended.
        host_work(gather_lane, [&, shard](device::cpu::Team&) { std::memcpy(shard, sum.data(), kShard); });
        gather_lane.record(updated);
      }
      gather->all_gather(range, shard, gathered);
      gather_lane.synchronize();
      for (std::size_t i = 0; i < range.bytes(); ++i)
        require(gathered[i] == static_cast<std::byte>(19 * size), "the last round's sum differs");
    });
  }
}

TEST(Threads, WorldExchangesTextsOfAnyLength) {
  run_threads(4, [](World& world) {
    for (const std::size_t unit : {0, 1, 2039, 2040, 2041, 10'000}) {
      const auto text = [&](int rank) { return std::string(unit * static_cast<std::size_t>(rank), 'a' + rank % 26); };
      const auto texts = world.exchange(text(world.rank()));
      for (int r = 0; r < world.size(); ++r) require(texts[static_cast<std::size_t>(r)] == text(r), "a text differs");
    }
  });
}

TEST(Threads, AllocatesSeveralArenas) {
  run_threads(3, [](World& world) {
    Lane lane("gather", 1, world.rank(), world.abort_token());
    const auto gather = world.open(lane);
    for (std::size_t bytes = 4096; bytes < (std::size_t{1} << 20); bytes *= 2) {
      const Arena arena = world.allocate(bytes);
      const ShardedRange range{bytes / 4, 0, bytes / 4 * 3};
      std::memset(arena.at(range.bytes()), world.rank() + 1, range.shard_bytes);
      gather->all_gather(range, arena.at(range.bytes()), arena.data());
      lane.synchronize();
      for (std::size_t i = 0; i < range.bytes(); ++i)
        require(arena.data()[i] == static_cast<std::byte>(i / range.shard_bytes + 1), "a byte differs");
      world.barrier();
    }
  });
}

// Runs ranks, one of which calls `end` while the others wait for it. Returns the failure that each of the others
// received. `end` may wait for these failures.
template <typename End>
std::vector<std::string> told_to_others(int ranks, End end) {
  std::vector<std::string> told(static_cast<std::size_t>(ranks));
  std::latch others(ranks - 1);
  const auto start = std::chrono::steady_clock::now();
  const auto f = [&](World& world) {
    const Arena arena = world.allocate(4096 * static_cast<std::size_t>(ranks + 1));
    Lane lane("gather", 1, world.rank(), world.abort_token());
    const auto gather = world.open(lane);
    const ShardedRange range{4096, 0, 4096 * static_cast<std::size_t>(ranks)};
    gather->all_gather(range, arena.at(range.bytes()), arena.data());
    lane.synchronize();
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      end(world, lane, others);
      return;
    }
    gather->all_gather(range, arena.at(range.bytes()), arena.data());
    try {
      lane.synchronize();
    } catch (const Aborted& e) {
      told[static_cast<std::size_t>(world.rank())] = e.what();
      others.count_down();
      throw;
    }
  };
  try {
    run_threads(ranks, f);
  } catch (const Aborted&) {
  } catch (const std::runtime_error& e) {
    told[1] = e.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  return told;
}

TEST(Threads, ExceptionOfOneRankEndsTheWaitsOfAll) {
  const auto told = told_to_others(4, [](World&, Lane&, std::latch&) { throw std::runtime_error("the disk is full"); });
  const std::string cause = "rank 1 failed: the disk is full";
  EXPECT_THAT(told, testing::ElementsAre(cause, "the disk is full", cause, cause));
}

TEST(Threads, TheNextWaitReportsAnExceptionInALane) {
  const auto told = told_to_others(3, [](World& world, Lane& lane, std::latch&) {
    host_work(lane, [](device::cpu::Team&) { throw std::runtime_error("a bad sector"); });
    world.barrier();
  });
  const std::string cause = "rank 1 failed: a bad sector";
  EXPECT_EQ(told[0], cause);
  EXPECT_EQ(told[2], cause);
}

TEST(Threads, AReportReachesOthersWhileTheRankContinues) {
  const auto told = told_to_others(3, [](World& world, Lane&, std::latch& others) {
    world.report_failure("the disk is full", Exit::failed);
    others.wait();
  });
  EXPECT_EQ(told[0], "rank 1 failed: the disk is full");
  EXPECT_EQ(told[2], told[0]);
}

TEST(Threads, AFailedRanksWaitInformsTheOthers) {
  const auto told = told_to_others(3, [](World& world, Lane& lane, std::latch& others) {
    host_work(lane, [](device::cpu::Team&) { throw std::runtime_error("a bad sector"); });
    EXPECT_THROW(world.barrier(), Aborted);
    others.wait();
  });
  EXPECT_EQ(told[0], "rank 1 failed: a bad sector");
  EXPECT_EQ(told[2], told[0]);
}

TEST(Threads, RankThatReturnsEarlyEndsTheWaitsForIt) {
  const auto told = told_to_others(3, [](World&, Lane&, std::latch&) {});
  EXPECT_THAT(told[0], testing::ContainsRegex("rank 1 ended while rank [02] waited for it"));
  EXPECT_EQ(told[0], told[2]);
}

TEST(Threads, BufferOutsideTheArenasIsAnError) {
  const auto run = [] {
    run_threads(2, [](World& world) {
      Lane lane("gather", 1, world.rank(), world.abort_token());
      const auto gather = world.open(lane);
      std::vector<std::byte> memory(300);
      gather->all_gather({100, 0, 200}, memory.data(), memory.data() + 100);
      lane.synchronize();
    });
  };
  EXPECT_THAT(run, testing::ThrowsMessage<Aborted>(testing::HasSubstr("outside the arenas")));
}

}  // namespace
}  // namespace strata::comm
