#include "tests/dist/comm_checks.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/comm/numbered_bytes.h"

namespace strata::comm {

using device::Arena;
using device::Lane;

void expect(bool ok, World& world, const char* what, int round) {
  if (!ok) fail(Exit::failed, "rank {} of {}: {} is wrong in round {}", world.rank(), world.size(), what, round);
}

std::size_t resident_bytes(const std::string& pattern) {
  // Each mapping has a line that ends in its file, then lines of counts: "Rss:   1234 kB".
  std::ifstream smaps("/proc/self/smaps");
  const std::regex file("/memfd:" + pattern);
  std::size_t total = 0;
  bool ours = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find('-') < line.find(' '))
      ours = std::regex_search(line, file);
    else if (ours && line.starts_with("Rss:"))
      total += std::strtoull(line.c_str() + sizeof "Rss:", nullptr, 10) * 1024;
  }
  return total;
}

std::size_t borrowed_bytes(const World& world) {
  const std::string run = "strata-[0-9a-f]+-";  // comm/mpi/shared_memory.cc
  return resident_bytes(run + "[0-9]+-") - resident_bytes(run + std::to_string(world.rank()) + "-");
}

namespace {

// Other ranks' bytes are read in place in shared memory, and count as this process's memory only while they are used.
void check_borrowing(World& world) {
  constexpr std::size_t kShard = std::size_t{12} << 20;
  const auto ranks = static_cast<std::size_t>(world.size());
  const ShardedRange range{kShard, 0, kShard * ranks};
  const Arena arena = world.allocate(kShard + 2 * range.bytes());
  std::memset(arena.data(), world.rank() + 1, arena.size());
  Lane lane("borrow", 1, world.rank(), world.abort_token());
  const auto communicator = world.open(lane);
  std::vector<const std::byte*> pieces(ranks);
  communicator->all_to_all(range, arena.at(0), arena.at(range.bytes()), pieces.data());
  lane.synchronize();
  bool same = true;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < kShard; i += 512) same = same && pieces[r][i] == static_cast<std::byte>(r + 1);
  expect(same, world, "a large all_to_all", 0);
  const std::size_t others = world.describe() == "mpi (shared memory)" ? kShard * (ranks - 1) : 0;
  const std::size_t lent = borrowed_bytes(world);
  expect(lent >= others, world, "borrowed_bytes, lent", 0);
  communicator->release();
  lane.synchronize();
  expect(lent - borrowed_bytes(world) >= others, world, "borrowed_bytes, released", 0);
}

// Groups of the even ranks, of the odd ones, and of all ranks, in an order of pieces that is not the ranks' order.
void check_groups(World& world) {
  const int rank = world.rank();
  std::vector<int> apart, all;
  for (int r = world.size() - 1; r >= 0; --r) {
    all.push_back(r);
    if (r % 2 == rank % 2) apart.push_back(r);
  }
  constexpr std::size_t kPiece = 70'000;
  const Arena arena = world.allocate(3 * kPiece * all.size());
  Lane lane("groups", 1, rank, world.abort_token());
  for (const std::vector<int>& members : {apart, all}) {
    const auto index = static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    const auto communicator = world.open(lane, {members, static_cast<int>(index)});
    const std::size_t bytes = kPiece * members.size(), at = kPiece * index;
    std::byte *const out = arena.at(0), *const in = arena.at(bytes), *const staging = arena.at(2 * bytes);
    for (std::size_t i = 0; i < kPiece; ++i) out[at + i] = value(rank, i, 1);
    for (std::size_t i = 0; i < bytes; ++i) in[i] = value(rank, i, 2);
    std::vector<const std::byte*> pieces(members.size());
    communicator->all_gather({kPiece, 0, bytes}, out + at, out);
    communicator->all_to_all({kPiece, 0, bytes}, in, staging, pieces.data());
    lane.synchronize();
    bool gathered = true, in_rank_order = true;
    for (std::size_t m = 0; m < members.size(); ++m)
      for (std::size_t i = 0; i < kPiece; ++i) {
        gathered = gathered && out[m * kPiece + i] == value(members[m], i, 1);
        in_rank_order = in_rank_order && pieces[m][i] == value(members[members.size() - 1 - m], at + i, 2);
      }
    expect(gathered, world, "all_gather of a group", 0);
    expect(in_rank_order, world, "all_to_all of a group", 0);
    communicator->release();
    std::vector<int> told(members.size());
    communicator->exchange(reinterpret_cast<const std::byte*>(&rank), sizeof rank,
                           reinterpret_cast<std::byte*>(told.data()));
    if (index == 0) std::memset(out, 42, kPiece);
    communicator->broadcast(out, kPiece, 0);
    lane.synchronize();
    expect(told == members, world, "exchange of a group", 0);
    expect(out[0] == std::byte{42} && out[kPiece - 1] == std::byte{42}, world, "broadcast of a group", 0);
  }
}

// Gathers with several message pieces each, with sizes that are not multiples of a piece, over complete and partial
// ranges.
void check_large_gathers(World& world) {
  constexpr std::size_t kShard = (std::size_t{9} << 20) + 12'345;
  const auto ranks = static_cast<std::size_t>(world.size()), own = static_cast<std::size_t>(world.rank());
  const Arena arena = world.allocate(kShard * (ranks + 1));
  Lane lane("gather", 1, world.rank(), world.abort_token());
  const auto gather = world.open(lane);
  for (std::size_t i = 0; i < kShard; ++i) arena.at(0)[i] = value(0, own * kShard + i, 1);
  int round = 0;
  for (const ShardedRange& range :
       {ShardedRange{kShard, 0, kShard * ranks}, ShardedRange{kShard, kShard / 2, kShard * ranks - 3},
        ShardedRange{kShard, kShard * (ranks - 1) + 1, kShard * ranks - 1}}) {
    std::memset(arena.at(kShard), 0, kShard * ranks);
    gather->all_gather(range, arena.at(0), arena.at(kShard));
    lane.synchronize();
    bool same = true;
    for (std::size_t i = 0; i < range.bytes(); ++i) same = same && arena.at(kShard)[i] == value(0, range.begin + i, 1);
    expect(same, world, "a large all_gather", round++);
  }
}

// Messages to the next and the previous rank, in two lanes at once, from one byte to several pieces. Every second rank
// receives first.
void check_messages(World& world) {
  const int rank = world.rank(), size = world.size();
  if (size == 1) return;
  const std::size_t sizes[] = {0, 1, 777, std::size_t{1} << 20, (std::size_t{6} << 20) + 12'345};
  constexpr std::size_t kCapacity = std::size_t{7} << 20;
  const Arena arena = world.allocate(4 * kCapacity);
  Lane forward("forward", 1, rank, world.abort_token()), backward("backward", 2, rank, world.abort_token());
  Lane* const lanes[] = {&forward, &backward};
  const std::unique_ptr<Communicator> communicators[] = {world.open(forward), world.open(backward)};
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  std::uint64_t total = 0;
  int round = 0;
  for (const std::size_t bytes : sizes) {
    ++round;
    total += bytes;
    for (int way = 0; way < 2; ++way) {
      std::byte *const out = arena.at(static_cast<std::size_t>(way) * 2 * kCapacity), *const in = out + kCapacity;
      for (std::size_t i = 0; i < bytes; ++i) out[i] = value(rank, i, round + 20 * way);
      const int to = way ? previous : next, from = way ? next : previous;
      Communicator& communicator = *communicators[way];
      if (rank % 2) communicator.receive(in, bytes, from);
      communicator.send(out, bytes, to);
      if (rank % 2 == 0) communicator.receive(in, bytes, from);
    }
    for (int way = 0; way < 2; ++way) {
      lanes[way]->synchronize();
      const std::byte* const in = arena.at((static_cast<std::size_t>(way) * 2 + 1) * kCapacity);
      bool same = true;
      for (std::size_t i = 0; i < bytes; ++i) same = same && in[i] == value(way ? next : previous, i, round + 20 * way);
      expect(same, world, "a message", round);
    }
    world.barrier();  // on other ranks, sends of this round may not have ended
  }
  const std::vector<int> nodes = world.nodes();
  for (int way = 0; way < 2; ++way) {
    const CommBytes sent = communicators[way]->sent();
    const auto to = static_cast<std::size_t>(way ? previous : next);
    const bool far = !nodes.empty() && nodes[to] != nodes[static_cast<std::size_t>(rank)];
    expect(sent.point_to_point == total && sent.total() == total, world, "the byte count of messages", way);
    expect(sent.between_nodes == (far ? total : 0), world, "the byte count of messages between nodes", way);
  }
}

}  // namespace

// A gather and a reduce lane at once, over whole units, tiles across shards, and tiles of which some ranks own nothing.
void check(World& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const int rank = world.rank();
  constexpr std::size_t kShard = 300'000;
  const std::size_t flat = kShard * ranks;
  const Arena arena = world.allocate(kShard + flat * 2 + flat + 8192);
  const Arena second = world.allocate(flat);
  std::byte* const shard = arena.at(0);
  std::byte* const out = arena.at(kShard);
  std::byte* const staging = arena.at(kShard + flat);
  std::byte* const in = second.at(0);
  Lane gather_lane("gather", 2, rank, world.abort_token()), reduce_lane("reduce", 1, rank, world.abort_token());
  const auto gather = world.open(gather_lane), reduce = world.open(reduce_lane);
  const ShardedRange ranges[] = {
      {kShard, 0, flat}, {kShard, kShard / 3, flat - 5}, {kShard, 7, 4096}, {kShard, flat - 100, flat}, {kShard, 3, 3}};
  std::vector<const std::byte*> pieces(ranks);
  std::uint64_t gathered = 0, reduced = 0;
  int round = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    for (const ShardedRange& range : ranges) {
      ++round;
      const auto own = range.owned(rank);
      for (std::size_t i = 0; i < kShard; ++i) shard[i] = value(0, static_cast<std::size_t>(rank) * kShard + i, round);
      for (std::size_t i = 0; i < range.bytes(); ++i) in[i] = value(rank, range.begin + i, round);
      gather->all_gather(range, shard, out);
      reduce->all_to_all(range, in, staging, pieces.data());
      reduce_lane.synchronize();
      bool same = true;
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < own.bytes(); ++i)
          same = same && pieces[r][i] == value(static_cast<int>(r), own.begin + i, round);
      expect(same, world, "all_to_all", round);
      reduce->release();
      reduce_lane.synchronize();
      gather_lane.synchronize();
      for (std::size_t i = 0; i < range.bytes(); ++i) same = same && out[i] == value(0, range.begin + i, round);
      expect(same, world, "all_gather", round);
      gathered += own.bytes() * (ranks - 1);
      reduced += range.bytes() - own.bytes();
    }
  }

  const int root = world.size() - 1;
  for (std::size_t i = 0; i < flat; ++i) in[i] = value(rank, i, 0);
  gather->broadcast(in, flat, root);
  const std::uint64_t mine = static_cast<std::uint64_t>(rank) * 1000;
  std::vector<std::uint64_t> all(ranks);
  gather->exchange(reinterpret_cast<const std::byte*>(&mine), sizeof mine, reinterpret_cast<std::byte*>(all.data()));
  gather_lane.synchronize();
  bool same = true;
  for (std::size_t i = 0; i < flat; ++i) same = same && in[i] == value(root, i, 0);
  expect(same, world, "broadcast", 0);
  for (std::size_t r = 0; r < ranks; ++r) expect(all[r] == r * 1000, world, "exchange", 0);

  const CommBytes sent = gather->sent();
  expect(sent.all_gather == gathered && reduce->sent().all_to_all == reduced, world, "a byte count", 0);
  expect(sent.broadcast == (rank == root ? flat * (ranks - 1) : 0), world, "the byte count of broadcast", 0);
  expect(sent.consensus == sizeof mine * (ranks - 1), world, "the byte count of exchange", 0);
  for (int i = 0; i < 3; ++i) {
    const auto texts = world.exchange(std::string(static_cast<std::size_t>(rank) * 3000, 'x'));
    for (std::size_t r = 0; r < ranks; ++r) expect(texts[r].size() == r * 3000, world, "World::exchange", i);
  }
  check_groups(world);
  check_large_gathers(world);
  check_messages(world);
  check_borrowing(world);
  if (rank == 0) std::printf("checked %s on %d ranks\n", world.describe().c_str(), world.size());
}

}  // namespace strata::comm
