// Messages that arrive in parts, and notices that arrive at any moment of a collective; ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/mpi/mpi.h"
#include "tests/comm/mpi/fake.h"
#include "tests/comm/numbered_bytes.h"
#include "tests/dist/comm_checks.h"
#include "tests/failure.h"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;
using device::Arena;
using device::Lane;
using testing::HasSubstr;

constexpr std::size_t kPiece = kMessagePiece;

std::unique_ptr<World> messages() {
  return mpi_messages_world(std::make_unique<MpiSession>(), "", 2s);
}

// The data of a gather in a lane, with one shard per rank.
class Gather {
 public:
  Gather(World& world, std::size_t shard)
      : world_(world),
        shard_(shard),
        ranks_(static_cast<std::size_t>(world.size())),
        arena_(world.allocate(shard * (ranks_ + 1))),
        lane_("gather", 1, world.rank(), world.abort_token()),
        communicator_(world.open(lane_)) {}

  void start(int round) {
    for (std::size_t i = 0; i < shard_; ++i) arena_.at(0)[i] = value(world_.rank(), i, round);
    communicator_->all_gather({shard_, 0, shard_ * ranks_}, arena_.at(0), arena_.at(shard_));
  }
  void wait() { lane_.synchronize(); }
  void expect_arrived(int round) const {
    bool same = true;
    for (std::size_t r = 0; r < ranks_; ++r)
      for (std::size_t i = 0; i < shard_; ++i)
        same = same && arena_.at(shard_)[r * shard_ + i] == value(static_cast<int>(r), i, round);
    EXPECT_TRUE(same) << "round " << round;
  }
  // The cause with which the wait ends. `or_later`: the rank's data may arrive before the failure. Then it is the cause
  // with which the next wait ends.
  std::string cause(bool or_later = false) {
    try {
      wait();
      if (or_later) world_.barrier();
    } catch (const Aborted& e) {
      return e.what();
    }
    return "";
  }

 private:
  World& world_;
  const std::size_t shard_, ranks_;
  const Arena arena_;
  Lane lane_;
  const std::unique_ptr<Communicator> communicator_;
};

void expect_all_ended_well(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(fake_mpi::open_requests(rank), 0U);
    EXPECT_EQ(fake_mpi::open_communicators(rank), 0U);
    EXPECT_EQ(fake_mpi::calls(rank, "Finalize"), 1U);
  }
}

// Every collective of two lanes at once, over a world, its groups, and nodes, whose ranks pass pieces on as they
// arrive. Bytes arrive in small parts, and messages do not end in the order in which they began.
TEST(MpiMessages, CollectivesWithPartialArrivals) {
  const std::vector<std::vector<int>> places = {{0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}};
  for (const auto& nodes : places) {
    const auto ranks = static_cast<int>(nodes.size());
    const bool newest_first = ranks == 4;
    fake_mpi::run_well(
        ranks, [](int) { check(*messages()); }, nodes, [&] { fake_mpi::set_bytes_per_call(700'001, newest_first); });
    expect_all_ended_well(ranks);
  }
}

// One byte arrives per call, for messages shorter and longer than MPI's eager limit, during a broadcast in another
// lane.
TEST(MpiMessages, AMessageArrivesByteByByte) {
  fake_mpi::run_well(
      2,
      [](int) {
        const auto world = messages();
        Gather small(*world, 100), large(*world, 5'000);
        Lane lane("broadcast", 2, world->rank(), world->abort_token());
        const auto broadcast = world->open(lane);
        const Arena arena = world->allocate(6'000);
        for (int round = 0; round < 3; ++round) {
          std::memset(arena.at(0), world->rank() == 1 ? 40 + round : 0, 6'000);
          small.start(round);
          broadcast->broadcast(arena.at(0), 6'000, 1);
          large.start(round + 10);
          const auto texts = world->exchange("rank " + std::to_string(world->rank()));
          EXPECT_EQ(texts[1], "rank 1");
          for (Gather* const gather : {&large, &small}) gather->wait();
          small.expect_arrived(round);
          large.expect_arrived(round + 10);
          lane.synchronize();
          EXPECT_EQ(arena.at(0)[5'999], static_cast<std::byte>(40 + round));
        }
        world->leave();
      },
      {}, [] { fake_mpi::set_bytes_per_call(1); });
  expect_all_ended_well(2);
}

// Many pieces at once would need memory for all of them, whether or not each waits for its receiver.
TEST(MpiMessages, AtMostSixteenPiecesOfALargeMessageAreInFlight) {
  for (const std::size_t eager : {kPiece / 2, kPiece}) {
    SCOPED_TRACE(eager);
    fake_mpi::run_well(
        2,
        [](int) {
          const auto world = messages();
          Gather gather(*world, 50 * kPiece + 5);
          gather.start(0);
          gather.wait();
          gather.expect_arrived(0);
          world->leave();
        },
        {},
        [&] {
          fake_mpi::set_bytes_per_call(kPiece / 2);
          fake_mpi::set_eager_limit(eager);
        });
    for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
      EXPECT_LE(fake_mpi::most_on_their_way(from, to), 16U);  // fewer if the other rank is quick to receive
      EXPECT_EQ(fake_mpi::arrived(from, to) / kPiece, 50U);
    }
    expect_all_ended_well(2);
  }
}

// A rank that only sends, as in a pipeline, does not fill the memory of one that is not ready to receive.
TEST(MpiMessages, ASenderIsAtMostOneMessageAhead) {
  constexpr std::size_t kMessages = 10, kBytes = 3 * kPiece + 5;
  fake_mpi::run_well(
      2,
      [](int number) {
        const auto world = messages();
        Lane lane("messages", 1, world->rank(), world->abort_token());
        const auto communicator = world->open(lane);
        const Arena arena = world->allocate(kMessages * kBytes);
        for (std::size_t m = 0; m < kMessages; ++m) {
          std::byte* const data = arena.at(m * kBytes);
          if (number == 0) {
            std::memset(data, static_cast<int>(m + 1), kBytes);
            communicator->send(data, kBytes, 1);
          } else {
            if (m == 0) std::this_thread::sleep_for(100ms);
            communicator->receive(data, kBytes, 0);
          }
        }
        lane.synchronize();
        for (std::size_t m = 0; m < kMessages; ++m) EXPECT_EQ(arena.at(m * kBytes)[kBytes - 1], std::byte(m + 1));
        world->leave();
      },
      {}, [] { fake_mpi::set_eager_limit(kPiece); });
  EXPECT_LE(fake_mpi::most_on_their_way(0, 1), 8U) << "the end of one message and all of the next";
  expect_all_ended_well(2);
}

// The cause that rank 0 reports if another rank fails while its gather is in the middle of a message from rank 1.
void fail_within_a_message(int failing, bool late) {
  constexpr std::size_t kArrives = 2 * kPiece + 333;
  std::latch stands(3), over(3);
  fake_mpi::run_well(
      3,
      [&](int number) {
        const auto world = messages();
        Gather gather(*world, 5 * kPiece);
        fake_mpi::stop_data(1, 0, fake_mpi::arrived(1, 0) + kArrives);
        world->barrier();
        gather.start(0);
        if (number != failing) stands.count_down();
        if (number == failing) {
          stands.arrive_and_wait();
          while (fake_mpi::arrived(1, 0) < kArrives) std::this_thread::sleep_for(1ms);
          world->report_failure("the disk is full", Exit::does_not_fit);
        }
        if (number == 0 && late) {
          std::this_thread::sleep_for(100ms);
          EXPECT_FALSE(world->abort_token().is_set()) << "no rank has set it yet";
          fake_mpi::delay_notices(failing, 0, 0);
        }
        EXPECT_THAT(gather.cause(number > 0), HasSubstr("the disk is full"));
        const Failure failure = world->failure();
        EXPECT_EQ(failure.rank, failing);
        EXPECT_EQ(failure.code, Exit::does_not_fit);
        EXPECT_EQ(world->prints_failure(), number == failing);
        over.arrive_and_wait();
        fake_mpi::stop_data(1, 0, fake_mpi::kAll);
        // While the world ends, the rest may still arrive in buffers that the gather no longer has.
      },
      {},
      [&] {
        if (late) fake_mpi::delay_notices(failing, 0, fake_mpi::kAll);
      });
  for (const int rank : {0, 1, 2}) EXPECT_EQ(fake_mpi::calls(rank, "Finalize"), 0U) << "it would wait for other ranks";
}

// The failing rank may also be the receiver.
TEST(MpiMessages, ARankFailsInTheMiddleOfAMessage) {
  for (const bool late : {false, true})
    for (const int failing : {1, 2}) fail_within_a_message(failing, late);
  fail_within_a_message(0, false);
}

// A notice that arrives after a collective has ended does not affect its data. Later collectives end with the cause,
// and so do waits in other lanes.
TEST(MpiMessages, ANoticeArrivesAfterACollectiveHasEnded) {
  std::latch ended(2), waiting(2);
  fake_mpi::run_well(
      2,
      [&](int number) {
        const auto world = messages();
        Gather gather(*world, 70'000), other(*world, 90'000);
        gather.start(0);
        gather.wait();
        if (number == 1) {
          ended.arrive_and_wait();
          world->report_failure("the disk is full", Exit::failed);
          waiting.arrive_and_wait();
          return;
        }
        ended.arrive_and_wait();
        other.start(1);  // rank 1 never comes
        std::this_thread::sleep_for(50ms);
        EXPECT_FALSE(world->abort_token().is_set());
        gather.expect_arrived(0);
        fake_mpi::delay_notices(1, 0, 0);
        EXPECT_EQ(other.cause(), "rank 1 failed: the disk is full");
        gather.start(2);
        EXPECT_EQ(gather.cause(), "rank 1 failed: the disk is full");
        EXPECT_THROW(world->barrier(), Aborted);
        EXPECT_THROW(world->leave(), Aborted);
        waiting.arrive_and_wait();
      },
      {}, [] { fake_mpi::delay_notices(1, 0, fake_mpi::kAll); });
}

// A departed rank's last data may arrive later than its leave notice.
TEST(MpiMessages, ALeaveNoticeOvertakesData) {
  std::latch left(2);
  fake_mpi::run_well(2, [&](int number) {
    const auto world = messages();
    Gather gather(*world, 3 * kPiece);
    world->barrier();
    if (number == 1) fake_mpi::stop_data(1, 0, fake_mpi::arrived(1, 0) + kPiece);
    world->barrier();
    gather.start(0);
    std::jthread later;
    if (number == 1)
      later = std::jthread([] {
        std::this_thread::sleep_for(700ms);
        fake_mpi::stop_data(1, 0, fake_mpi::kAll);
      });
    else
      gather.wait();
    world->leave();
    gather.wait();
    gather.expect_arrived(0);
  });
  expect_all_ended_well(2);
}

// A rank whose MPI call fails reports that call, and the other ranks report theirs.
TEST(MpiMessages, AnMpiErrorIsReportedByItsRank) {
  for (const char* call : {"Testsome", "Irecv"}) {
    std::latch fails(2);
    fake_mpi::run_well(2, [&](int number) {
      const auto world = messages();
      Gather gather(*world, 2 * kPiece);
      world->barrier();
      fails.arrive_and_wait();
      if (number == 1) fake_mpi::fail_calls(1, call);
      gather.start(0);
      const std::string cause = gather.cause(number == 0);
      EXPECT_THAT(cause, HasSubstr(std::string("MPI_") + call + " failed: error "));
      if (number == 1) world->report_failure(cause, Exit::failed);
      EXPECT_EQ(world->failure().rank, 1);
    });
  }
}

TEST(MpiMessages, DescribesItself) {
  fake_mpi::run_well(3,
                     [](int) {
                       const auto world =
                           mpi_messages_world(std::make_unique<MpiSession>(), "ranks are on different nodes");
                       EXPECT_EQ(world->describe(), "mpi (messages): ranks are on different nodes");
                       EXPECT_THAT(world->nodes(), testing::ElementsAre(0, 0, 1));
                       EXPECT_EQ(world->node_size(), world->rank() == 2 ? 1 : 2);
                       EXPECT_EQ(world->node_rank(), world->rank() % 2);
                       world->leave();
                     },
                     {0, 0, 1});
  expect_all_ended_well(3);
}

}  // namespace
}  // namespace strata::comm
