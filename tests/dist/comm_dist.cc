// One rank of the tests in comm_test.cc: comm_dist MODE TRANSPORT under mpirun.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/mpi/mpi.h"
#include "tests/dist/comm_checks.h"

namespace strata::comm {
namespace {

using device::Arena;
using device::Lane;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// All ranks gather forever, and rank 1 ends in the way that MODE says.
void end_one_rank(World& world, std::string_view mode) {
  // Handles SIGTERM like the program, because mpirun sends it to the survivors as soon as a rank dies.
  std::signal(SIGTERM, SIG_IGN);
  constexpr std::size_t kShard = std::size_t{1} << 20;
  const Arena arena = world.allocate(kShard * static_cast<std::size_t>(world.size()) + kShard);
  Lane lane("gather", 1, world.rank(), world.abort_token());
  const auto gather = world.open(lane);
  const ShardedRange range{kShard, 0, kShard * static_cast<std::size_t>(world.size())};
  const double start = now_ms();
  try {
    for (int i = 0;; ++i) {
      if (world.rank() == 1 && i == 50) {
        if (mode == "kill") std::raise(SIGKILL);
        if (mode == "leave") return;
        fail(Exit::failed, "the disk is full");
      }
      gather->all_gather(range, arena.at(0), arena.at(kShard));
      lane.synchronize();
    }
  } catch (const Aborted& e) {
    std::fprintf(stderr, "rank %d of %d ended after %.1f s: %s\n", world.rank(), world.size(),
                 (now_ms() - start) / 1000, e.what());
    throw;
  }
}

// Prints whether this rank is the one that reports the failure.
void say_who_speaks(World& world) {
  const Failure failure = world.failure();
  std::fprintf(stderr, "rank %d %s: %s\n", world.rank(), world.prints_failure() ? "speaks" : "is silent",
               failure.cause.c_str());
}

// Two ranks fail independently, before either has the other's notice: 1 and 2 at the same moment, or 1 a second after
// 2, without having looked for the notice. `in_a_lane`: the work has already set the token.
void fail_on_two_ranks(World& world, bool late, bool in_a_lane) {
  std::signal(SIGTERM, SIG_IGN);
  world.barrier();
  try {
    if (world.rank() != 1 && world.rank() != 2)
      for (;;) world.barrier();
    if (late && world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    if (in_a_lane) world.abort_token().set({world.rank(), "the disk is full", Exit::failed});
    fail(Exit::failed, "the disk is full");
  } catch (const std::exception& e) {
    world.report_failure(e.what(), Exit::failed);
    say_who_speaks(world);
    throw Aborted(e.what());
  }
}

// A collective ends in the middle of a message: rank 1 dies or fails when a peer's piece has begun to arrive but is not
// complete.
void end_within_a_message(World& world, bool dies) {
  std::signal(SIGTERM, SIG_IGN);
  constexpr std::size_t kShard = std::size_t{48} << 20;
  const auto ranks = static_cast<std::size_t>(world.size());
  const Arena arena = world.allocate(kShard * (ranks + 1));
  std::memset(arena.data(), 0, arena.size());
  Lane lane("gather", 1, world.rank(), world.abort_token());
  const auto gather = world.open(lane);
  const ShardedRange range{kShard, 0, kShard * ranks};
  try {
    for (int round = 1; round < 250; ++round) {
      std::memset(arena.data(), round, kShard);
      world.barrier();
      gather->all_gather(range, arena.at(0), arena.at(kShard));
      const volatile std::byte* const begins = arena.at(kShard);  // rank 0's piece
      const volatile std::byte* const ends = begins + kShard - 1;
      const auto now = static_cast<std::byte>(round);
      while (world.rank() == 1 && *ends != now && !world.abort_token().is_set())
        if (*begins == now && *ends != now) {
          if (dies) std::raise(SIGKILL);
          fail(Exit::failed, "the disk is full within a message");
        }
      lane.synchronize();
    }
  } catch (const std::exception& e) {
    world.report_failure(e.what(), Exit::failed);
    say_who_speaks(world);
    try {
      lane.synchronize();  // which ends as all waits do
    } catch (const Aborted&) {
    }
    throw Aborted(e.what());
  }
}

// Rank 1 leaves while one of its lanes still has to send the last data.
void leave_before_the_last_data(World& world) {
  constexpr std::size_t kShard = std::size_t{1} << 20;
  const auto ranks = static_cast<std::size_t>(world.size());
  const Arena arena = world.allocate(kShard * (ranks + 1));
  std::memset(arena.data(), world.rank() + 1, arena.size());
  Lane lane("gather", 1, world.rank(), world.abort_token());
  const auto gather = world.open(lane);
  world.barrier();
  std::jthread last([&] {
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    gather->all_gather({kShard, 0, kShard * ranks}, arena.at(0), arena.at(kShard));
  });
  if (world.rank() != 1) {
    last.join();
    lane.synchronize();
  }
  world.leave();
  if (last.joinable()) last.join();
  lane.synchronize();
  for (std::size_t r = 0; r < ranks; ++r)
    expect(arena.at(kShard)[r * kShard] == static_cast<std::byte>(r + 1), world, "the last gather", 0);
  if (world.rank() == 0) std::printf("all left\n");
}

// Acts as if each rank were on a node of its own, so that no rank sees another's process. Rank 1 never reaches its end.
std::unique_ptr<World> connect_strangers() {
  auto session = std::make_unique<MpiSession>();
  session->neighbours.clear();
  return mpi_messages_world(std::move(session), "", std::chrono::seconds(2));
}

// Acts as if each node had two ranks.
std::unique_ptr<World> connect_nodes() {
  auto session = std::make_unique<MpiSession>();
  for (std::size_t rank = 0; rank < session->nodes.size(); ++rank) session->nodes[rank] = static_cast<int>(rank / 2);
  return mpi_messages_world(std::move(session), "");
}

void hang_one_rank(World& world) {
  world.barrier();
  std::signal(SIGTERM, SIG_IGN);
  if (world.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(20));
    std::_Exit(0);
  }
  try {
    world.leave();
  } catch (const Aborted& e) {
    std::fprintf(stderr, "%s\n", e.what());
    throw;
  }
}

void measure(World& world) {
  constexpr std::size_t kFlat = std::size_t{64} << 20;
  const auto ranks = static_cast<std::size_t>(world.size());
  const ShardedRange range{kFlat / ranks, 0, kFlat};
  const Arena arena = world.allocate(3 * kFlat);
  std::memset(arena.data(), world.rank() + 1, arena.size());
  Lane lane("measure", 1, world.rank(), world.abort_token());
  const auto communicator = world.open(lane);
  std::vector<const std::byte*> pieces(ranks);
  const auto time = [&](const char* name, auto&& work) {
    double best = 1e9, sum = 0;
    constexpr int kTimes = 20;
    for (int i = -3; i < kTimes; ++i) {
      world.barrier();
      const double start = now_ms();
      work();
      lane.synchronize();
      world.barrier();
      const double ms = now_ms() - start;
      if (i < 0) continue;
      best = std::min(best, ms);
      sum += ms;
    }
    const double received = static_cast<double>(kFlat) * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    if (world.rank() == 0)
      std::printf("%s: %s of 64 MiB on %d ranks: best %.2f ms, mean %.2f ms, %.2f GB/s received by a rank\n",
                  world.describe().c_str(), name, world.size(), best, sum / kTimes, received / best / 1e6);
  };
  time("nothing", [] {});
  time("all_gather", [&] { communicator->all_gather(range, arena.at(0), arena.at(kFlat)); });
  time("all_to_all", [&] {
    communicator->all_to_all(range, arena.at(0), arena.at(2 * kFlat), pieces.data());
    communicator->release();
  });
  // Includes the pass that reads the pieces, because the reads are what crosses shared memory.
  time("all_to_all, read", [&] {
    communicator->all_to_all(range, arena.at(0), arena.at(2 * kFlat), pieces.data());
    lane.synchronize();
    for (std::size_t r = 0; r < ranks; ++r) std::memcpy(arena.at(kFlat), pieces[r], kFlat / ranks);
    communicator->release();
  });
}

int run(std::string_view mode, std::string_view transport_name) {
  const Transport transport = transport_name == "messages"        ? Transport::messages
                              : transport_name == "shared_memory" ? Transport::shared_memory
                                                                  : Transport::automatic;
  try {
    const auto world = mode == "hang" ? connect_strangers()
                       : transport_name == "nodes"
                           ? connect_nodes()
                           : connect(mode == "solo" ? Backend::solo : Backend::automatic, transport);
    world->when_lost([&](const Failure& failure) {
      std::fprintf(stderr, "rank %d speaks at once: %s\n", world->rank(), failure.cause.c_str());
    });
    try {
      if (mode == "check")
        check(*world);
      else if (mode == "measure")
        measure(*world);
      else if (mode == "hang")
        hang_one_rank(*world);
      else if (mode == "both" || mode == "late" || mode == "late in a lane")
        fail_on_two_ranks(*world, mode != "both", mode == "late in a lane");
      else if (mode == "killed within a message" || mode == "fails within a message")
        end_within_a_message(*world, mode == "killed within a message");
      else if (mode == "leaves early")
        leave_before_the_last_data(*world);
      else if (mode != "solo")
        end_one_rank(*world, mode);
      if (mode == "check") world->leave();
    } catch (const Aborted& e) {
      return static_cast<int>(Exit::failed);
    } catch (const Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      world->report_failure(e.what(), e.code());
      return static_cast<int>(e.code());
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return static_cast<int>(e.code());
  }
  return 0;
}

}  // namespace
}  // namespace strata::comm

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return strata::comm::run(argv[1], argv[2]);
}
