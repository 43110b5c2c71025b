// Messages between two ranks (Communicator::send and receive); ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/host_work.h"
#include "tests/comm/numbered_bytes.h"
#include "tests/comm/run_threads.h"

namespace strata::comm {
namespace {

using device::Arena;
using device::Lane;

// Sends one message of each size to the rank `ahead` places on, and receives one from the rank as many places back, all
// queued at once in one lane. Every second rank receives first, so that sends and receives meet.
class Ring {
 public:
  Ring(World& world, const char* name, int ahead, const std::vector<std::size_t>& sizes)
      : world_(world),
        to_((world.rank() + ahead + world.size()) % world.size()),
        from_((world.rank() - ahead + world.size()) % world.size()),
        sizes_(sizes),
        capacity_(*std::ranges::max_element(sizes) + 1),
        arena_(world.allocate(2 * capacity_ * sizes.size())),
        lane_(name, 2, world.rank(), world.abort_token()),
        communicator_(world.open(lane_)) {}

  void start(int round) {
    for (std::size_t m = 0; m < sizes_.size(); ++m) {
      for (std::size_t i = 0; i < sizes_[m]; ++i) out(m)[i] = value(world_.rank(), i, round + static_cast<int>(m));
      in(m)[sizes_[m]] = std::byte{42};
    }
    for (std::size_t m = 0; m < sizes_.size(); ++m) {
      if (world_.rank() % 2 == 1) communicator_->receive(in(m), sizes_[m], from_);
      communicator_->send(out(m), sizes_[m], to_);
      // The buffer may be used again at once.
      host_work(lane_,
                [data = out(m), bytes = sizes_[m]](device::cpu::Team&) { std::fill_n(data, bytes, std::byte{}); });
      if (world_.rank() % 2 == 0) communicator_->receive(in(m), sizes_[m], from_);
    }
  }
  void finish(int round) {
    lane_.synchronize();
    for (std::size_t m = 0; m < sizes_.size(); ++m) {
      for (std::size_t i = 0; i < sizes_[m]; ++i)
        require(in(m)[i] == value(from_, i, round + static_cast<int>(m)), "a received byte differs");
      require(in(m)[sizes_[m]] == std::byte{42}, "a byte after a message was written");
    }
  }
  CommBytes sent() const { return communicator_->sent(); }

 private:
  std::byte* out(std::size_t m) const { return arena_.at(m * capacity_); }
  std::byte* in(std::size_t m) const { return arena_.at((sizes_.size() + m) * capacity_); }

  World& world_;
  const int to_, from_;
  const std::vector<std::size_t> sizes_;
  const std::size_t capacity_;
  const Arena arena_;
  Lane lane_;
  const std::unique_ptr<Communicator> communicator_;
};

TEST(Messages, AnySizeTravelsInBothDirectionsAtOnce) {
  EXPECT_TRUE(rc::check([] {
    const int ranks = *rc::gen::inRange(2, 5);
    std::vector<std::size_t> sizes{0, 1, 3, 4096, (std::size_t{1} << 20) + 1};
    sizes.push_back(*rc::gen::inRange<std::size_t>(0, 300'000));
    const auto nodes = *rc::gen::arbitrary<bool>() ? std::vector<int>{0, 0, 1, 1, 2} : std::vector<int>(5, 0);
    run_threads(ranks,
                [&](World& world) {
                  Ring forward(world, "forward", 1, sizes), backward(world, "backward", -1, sizes);
                  constexpr int kRounds = 3;
                  for (int round = 0; round < kRounds; ++round) {
                    forward.start(round);
                    backward.start(round + 50);
                    forward.finish(round);
                    backward.finish(round + 50);
                  }
                  std::uint64_t bytes = 0;
                  for (const std::size_t size : sizes) bytes += kRounds * size;
                  const auto node = [&](int ahead) {
                    return nodes[static_cast<std::size_t>((world.rank() + ahead + world.size()) % world.size())];
                  };
                  for (const auto& [ring, ahead] : {std::pair(&forward, 1), std::pair(&backward, -1)}) {
                    require(ring->sent().point_to_point == bytes && ring->sent().total() == bytes,
                            "other bytes are counted");
                    require(ring->sent().between_nodes == (node(0) == node(ahead) ? 0 : bytes), "bytes between nodes");
                  }
                },
                {nodes.begin(), nodes.begin() + ranks});
  }));
}

// Messages between collectives, in a group whose order is not that of the ranks: each rank's messages arrive in the
// order in which it sent them, whatever other senders do.
TEST(Messages, EachPairsMessagesArriveInOrder) {
  run_threads(4, [](World& world) {
    const std::vector<int> members{3, 0, 2, 1};
    const auto index = static_cast<int>(std::ranges::find(members, world.rank()) - members.begin());
    Lane lane("lane", 1, world.rank(), world.abort_token());
    const auto group = world.open(lane, {members, index});
    constexpr std::size_t kBytes = 10, kMessages = 20;
    const Arena arena = world.allocate(4 * kMessages * kBytes);
    const auto at = [&](int from, std::size_t m) {
      return arena.at((static_cast<std::size_t>(from) * kMessages + m) * kBytes);
    };
    for (std::size_t m = 0; m < kMessages; ++m)
      for (std::size_t i = 0; i < kBytes; ++i) at(index, m)[i] = value(index, i, static_cast<int>(m));
    if (index == 0) {
      for (std::size_t m = 0; m < kMessages; ++m)
        for (int from = 3; from > 0; --from) group->receive(at(from, m), kBytes, from);
    } else {
      for (std::size_t m = 0; m < kMessages; ++m) group->send(at(index, m), kBytes, 0);
    }
    group->broadcast(at(0, 0), 4 * kMessages * kBytes, 0);
    lane.synchronize();
    for (int from = 0; from < 4; ++from)
      for (std::size_t m = 0; m < kMessages; ++m)
        for (std::size_t i = 0; i < kBytes; ++i)
          require(at(from, m)[i] == value(from, i, static_cast<int>(m)), "a received byte differs");
  });
}

// The message that rank 0 gets when its wait ends because rank 1 failed.
std::string told_while(const std::function<void(Communicator&, std::byte*)>& waits) {
  std::string told;
  std::latch asked(1);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(run_threads(2,
                           [&](World& world) {
                             const Arena arena = world.allocate(4096);
                             Lane lane("lane", 1, world.rank(), world.abort_token());
                             const auto communicator = world.open(lane);
                             if (world.rank() == 1) {
                               asked.wait();
                               throw std::runtime_error("the disk is full");
                             }
                             waits(*communicator, arena.data());
                             asked.count_down();
                             try {
                               lane.synchronize();
                             } catch (const Aborted& e) {
                               told = e.what();
                               throw;
                             }
                           }),
               std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  return told;
}

TEST(Messages, WaitsEndWhenTheRunFails) {
  EXPECT_EQ(told_while([](Communicator& c, std::byte* data) { c.receive(data, 100, 1); }),
            "rank 1 failed: the disk is full");
  EXPECT_EQ(told_while([](Communicator& c, std::byte* data) { c.send(data, 100, 1); }),
            "rank 1 failed: the disk is full");
}

TEST(MessagesDeathTest, NeedAnotherRankAndTheSameSize) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto both = [](std::size_t sent, std::size_t received, int to) {
    run_threads(2, [&](World& world) {
      const Arena arena = world.allocate(4096);
      Lane lane("lane", 1, world.rank(), world.abort_token());
      const auto communicator = world.open(lane);
      if (world.rank() == 0)
        communicator->send(arena.data(), sent, to);
      else
        communicator->receive(arena.data(), received, 0);
      lane.synchronize();
    });
  };
  EXPECT_DEATH(both(100, 101, 1), "100 == 101|100.*101");
  EXPECT_DEATH(both(100, 100, 0), "is_peer");
  EXPECT_DEATH(both(100, 100, 2), "is_peer");
  const auto world = solo_world();
  Lane lane("lane", 1, 0, world->abort_token());
  EXPECT_DEATH(world->open(lane)->send(nullptr, 0, 0), "is_peer");
  EXPECT_DEATH(world->open(lane)->receive(nullptr, 0, 1), "is_peer");
}

}  // namespace
}  // namespace strata::comm
