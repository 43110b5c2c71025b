#include "comm/nccl/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>

#include "comm/agreement.h"
#include "tests/comm/nccl/fake.h"
#include "tests/comm/nccl/ranks.h"
#include "tests/comm/numbered_bytes.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"

namespace strata::comm {
namespace {

using device::Arena;
using device::Lane;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kLong = 60s;

// Any part of a unit. Its ends are often ends of ranks' shards, so it may also be the whole unit.
ShardedRange any_range(int ranks) {
  const std::size_t shard = *rc::gen::inRange<std::size_t>(1, 5000);
  const auto any_bound = [&] {
    if (*rc::gen::inRange(0, 3) != 0)
      return *rc::gen::inRange<std::size_t>(0, static_cast<std::size_t>(ranks) + 1) * shard;
    return *rc::gen::inRange<std::size_t>(0, static_cast<std::size_t>(ranks) * shard + 1);
  };
  const std::size_t one = any_bound(), other = any_bound();
  return {shard, std::min(one, other), std::max(one, other)};
}

class Nccl : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake_nccl::alive(), 0);
    EXPECT_EQ(fake_nccl::stuck(), 0);
    fake_nccl::reset();
  }
};

TEST_F(Nccl, GatherGivesEveryRankTheRange) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 4);
    const ShardedRange range = any_range(ranks);
    const bool in_place = *rc::gen::arbitrary<bool>();
    run_ranks(ranks, kLong, [&](Rank& rank) {
      const int r = rank.world.rank();
      const Arena arena(range.shard_bytes + range.bytes() + 1, rank.device);
      Lane lane = rank.lane("gather");
      const auto gather = rank.open(lane);
      const auto own = range.owned(r);
      // In place: the piece lies at its own place in `out`, so the shard begins before or after `out`.
      std::byte* const out = arena.at(range.shard_bytes);
      std::byte* const piece =
          in_place ? out + (own.begin - range.begin) : arena.at(0) + (own.begin % range.shard_bytes);
      std::byte* const shard =
          own.bytes() ? piece - (own.begin - static_cast<std::size_t>(r) * range.shard_bytes) : nullptr;
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < own.bytes(); ++i) piece[i] = value(0, own.begin + i, round);
        gather->all_gather(range, shard, out);
        lane.synchronize();
        for (std::size_t i = 0; i < range.bytes(); ++i)
          require(out[i] == value(0, range.begin + i, round), "a gathered byte differs");
      }
      const auto others = static_cast<std::uint64_t>(ranks - 1);
      require(gather->sent().all_gather == 3 * others * own.bytes(), "all_gather counts other bytes");
      require(gather->sent().total() == gather->sent().all_gather, "bytes of another kind were counted");
    });
  }));
}

TEST_F(Nccl, AllToAllGivesEveryRankItsPieceOfAll) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 4);
    const ShardedRange range = any_range(ranks);
    run_ranks(ranks, kLong, [&](Rank& rank) {
      const auto own = range.owned(rank.world.rank());
      const Arena in(range.bytes() + 1, rank.device);
      const Arena staging(static_cast<std::size_t>(ranks) * range.shard_bytes, rank.device);
      Lane lane = rank.lane("reduce");
      const auto reduce = rank.open(lane);
      std::vector<const std::byte*> pieces(static_cast<std::size_t>(ranks));
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < range.bytes(); ++i) in.data()[i] = value(rank.world.rank(), range.begin + i, round);
        reduce->all_to_all(range, in.data(), staging.data(), pieces.data());
        lane.synchronize();
        for (int r = 0; r < ranks; ++r)
          for (std::size_t i = 0; i < own.bytes(); ++i)
            require(pieces[static_cast<std::size_t>(r)][i] == value(r, own.begin + i, round), "a byte differs");
        reduce->release();
      }
      require(reduce->sent().all_to_all == 3 * (range.bytes() - own.bytes()), "all_to_all counts other bytes");
      require(reduce->sent().total() == reduce->sent().all_to_all, "bytes of another kind were counted");
    });
  }));
}

TEST_F(Nccl, BroadcastAndExchange) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(1, 4), root = *rc::gen::inRange(0, ranks);
    const std::size_t bytes = *rc::gen::inRange<std::size_t>(1, 300'000);
    const std::size_t message = *rc::gen::inRange<std::size_t>(1, Communicator::kMaxExchange + 1);
    run_ranks(ranks, kLong, [&](Rank& rank) {
      const int r = rank.world.rank();
      const Arena data(bytes, rank.device), mine(message, rank.device);
      const Arena all(message * static_cast<std::size_t>(ranks), rank.device);
      Lane lane = rank.lane("control");
      const auto control = rank.open(lane);
      for (int round = 0; round < 3; ++round) {
        std::memset(data.data(), r + 10 * round, bytes);
        std::memset(mine.data(), r + 100 * round, message);
        control->broadcast(data.data(), bytes, root);
        control->exchange(mine.data(), message, all.data());
        lane.synchronize();
        for (std::size_t i = 0; i < bytes; ++i)
          require(data.data()[i] == static_cast<std::byte>(root + 10 * round), "a byte of the broadcast differs");
        for (std::size_t i = 0; i < all.size(); ++i)
          require(all.data()[i] == static_cast<std::byte>(i / message + static_cast<std::size_t>(100 * round)),
                  "a byte of the exchange differs");
      }
      const auto others = static_cast<std::uint64_t>(ranks - 1);
      require(control->sent().broadcast == (r == root ? 3 * bytes * others : 0), "broadcast's bytes");
      require(control->sent().consensus == 3 * message * others, "exchange's bytes");
    });
  }));
}

TEST_F(Nccl, MessagesGoBothWaysAtOnce) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{300'001}})
    run_ranks(3, kLong, [&](Rank& rank) {
      const int r = rank.world.rank(), next = (r + 1) % 3, previous = (r + 2) % 3;
      const Arena arena(4 * bytes + 1, rank.device);
      Lane forward = rank.lane("forward"), backward = rank.lane("backward");
      const auto ahead = rank.open(forward), back = rank.open(backward);
      for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < bytes; ++i) {
          arena.at(0)[i] = value(r, i, round);
          arena.at(bytes)[i] = value(r, i, round + 9);
        }
        for (const bool sends : {r != 1, r == 1}) {  // rank 1 receives first
          if (sends) {
            ahead->send(arena.at(0), bytes, next);
            back->send(arena.at(bytes), bytes, previous);
          } else {
            ahead->receive(arena.at(2 * bytes), bytes, previous);
            back->receive(arena.at(3 * bytes), bytes, next);
          }
        }
        forward.synchronize();
        backward.synchronize();
        for (std::size_t i = 0; i < bytes; ++i) {
          require(arena.at(2 * bytes)[i] == value(previous, i, round), "a byte of the rank before differs");
          require(arena.at(3 * bytes)[i] == value(next, i, round + 9), "a byte from ahead differs");
        }
        rank.world.barrier();
      }
      require(ahead->sent().point_to_point == 3 * bytes && ahead->sent().total() == 3 * bytes, "messages' bytes");
    });
}

// A thread's world in a form that nccl_world can own.
class Lent final : public World {
 public:
  explicit Lent(World& world) : world_(world) {}
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int node_size() const override { return world_.node_size(); }
  int node_rank() const override { return world_.node_rank(); }
  std::string describe() const override { return world_.describe(); }
  AbortToken& abort_token() override { return world_.abort_token(); }
  std::unique_ptr<Communicator> open(Lane& lane, const Group& group) override { return world_.open(lane, group); }
  std::vector<std::string> exchange(const std::string& mine) override { return world_.exchange(mine); }
  void check_peers() override { world_.check_peers(); }
  void report_failure(const std::string& cause, Exit code) override { world_.report_failure(cause, code); }

 protected:
  Arena allocate_host(std::size_t bytes) override { return world_.allocate(bytes); }

 private:
  World& world_;
};

// Connects two ranks with these GPUs; rank 1 finds this version of NCCL. Returns why each rank does without NCCL.
std::array<std::string, 2> connect(std::array<device::Device, 2> devices, int version, Backend backend,
                                   const std::function<void(World&)>& f) {
  std::array<std::string, 2> left_out;
  run_threads(2, [&](World& world) {
    fake_nccl::set_version(world.rank() == 1 ? version : 0);
    std::exception_ptr thrown;
    try {
      const auto nccl = nccl_world(
          std::make_unique<Lent>(world), devices[static_cast<std::size_t>(world.rank())], backend,
          [&](const std::string& why) { left_out[static_cast<std::size_t>(world.rank())] = why; }, kLong);
      f(*nccl);
    } catch (...) {
      thrown = std::current_exception();
    }
    fake_nccl::set_version(0);
    if (thrown) std::rethrow_exception(thrown);
  });
  return left_out;
}

constexpr device::Device kFirst{device::Kind::cuda, 0}, kSecond{device::Kind::cuda, 1};

TEST_F(Nccl, AWorldOfGpusUsesNccl) {
  connect({kFirst, kSecond}, 0, Backend::automatic, [](World& world) {
    require(world.describe() == "nccl 2.29.3 over threads", "describe()");
    const ShardedRange range{100, 0, 200};
    const device::Device device{device::Kind::cuda, world.rank()};
    const Arena arena = world.allocate(300, device);
    Lane lane("gather", 1, world.rank(), world.abort_token(), device);
    const auto gather = world.open(lane);
    std::memset(arena.data(), 7 + world.rank(), 100);
    gather->all_gather(range, arena.data(), arena.at(100));
    lane.synchronize();
    for (std::size_t i = 0; i < 200; ++i)
      require(arena.at(100)[i] == static_cast<std::byte>(7 + i / 100), "a gathered byte differs");
  });
}

// Ranks with registered buffers cannot communicate with ranks without.
TEST_F(Nccl, BuffersAreRegisteredOnAllRanksOrNone) {
  const auto registered = [] {
    int count = -1;
    connect({kFirst, kSecond}, 0, Backend::automatic, [&](World& world) {
      const device::Device device{device::Kind::cuda, world.rank()};
      const Arena arena = world.allocate(4096, device);
      Lane lane("gather", 1, world.rank(), world.abort_token(), device);
      const auto gather = world.open(lane);
      world.barrier();
      if (world.rank() == 0) count = fake_nccl::registered();
      world.barrier();
    });
    return count;
  };
  EXPECT_EQ(registered(), 2);
  fake_nccl::set(1, fake_nccl::Fault::registration_is_refused);
  EXPECT_EQ(registered(), 0);
}

TEST_F(Nccl, DifferentVersionsAreRefusedAndBothAreNamed) {
  EXPECT_FAILURE(connect({kFirst, kSecond}, 22703, Backend::automatic, [](World&) {}), Exit::usage,
                 AllOf(HasSubstr("rank 0 found NCCL 2.29.3 and rank 1 NCCL 2.27.3"),
                       HasSubstr("install the same version on all nodes")));
}

TEST_F(Nccl, AVersionThatCannotEndAHangIsNotUsed) {
  EXPECT_FAILURE(connect({kFirst, kSecond}, 22105, Backend::nccl, [](World&) {}), Exit::usage,
                 AllOf(HasSubstr("2.21.5"), HasSubstr("install 2.22 or newer")));
  const auto told = connect({kFirst, kSecond}, 22105, Backend::automatic,
                            [](World& world) { require(world.describe() == "threads", "2.21.5 is used"); });
  EXPECT_THAT(told, Each(HasSubstr("2.21.5")));
}

TEST_F(Nccl, RanksThatShareAGpuAreRefused) {
  constexpr const char* kShared = "ranks share GPU-00000000-0000-0000-0000-000000000000";
  EXPECT_FAILURE(connect({kFirst, kFirst}, 0, Backend::nccl, [](World&) {}), Exit::usage, HasSubstr(kShared));
  EXPECT_THAT(connect({kFirst, kFirst}, 0, Backend::automatic, [](World&) {}), Each(kShared));
}

TEST_F(Nccl, CpuRanksGetNoNote) {
  EXPECT_THAT(connect({}, 0, Backend::automatic, [](World&) {}), Each(""));
}

TEST_F(Nccl, AMissingGpuEndsAllRanks) {
  EXPECT_FAILURE(connect({kFirst, {device::Kind::cuda, 9}}, 0, Backend::automatic, [](World&) {}), Exit::usage,
                 HasSubstr("rank 1: there is no GPU with that number"));
}

}  // namespace
}  // namespace strata::comm
