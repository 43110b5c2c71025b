#include <gtest/gtest.h>

#include <cstring>

#include "comm/communicator.h"

namespace strata::comm {
namespace {

TEST(Solo, CollectivesAreCopiesOrNothing) {
  const auto world = solo_world();
  EXPECT_EQ(world->describe(), "one rank without mpirun");
  EXPECT_EQ(world->size(), 1);
  const device::Arena arena = world->allocate(3000);
  device::Lane lane("lane", 1, 0, world->abort_token());
  const auto solo = world->open(lane);
  std::memset(arena.at(0), 1, 1000);
  const ShardedRange range{1000, 100, 900};
  const std::byte* pieces[1];
  std::uint64_t mine = 42, all = 0;
  solo->all_gather(range, arena.at(0), arena.at(1000));
  solo->all_to_all(range, arena.at(0), arena.at(2000), pieces);
  solo->release();
  solo->exchange(reinterpret_cast<const std::byte*>(&mine), sizeof mine, reinterpret_cast<std::byte*>(&all));
  solo->broadcast(arena.at(0), 1000, 0);
  lane.synchronize();
  EXPECT_EQ(std::memcmp(arena.at(1000), arena.at(0), range.bytes()), 0);
  EXPECT_EQ(arena.at(1000)[range.bytes()], std::byte{0});
  EXPECT_EQ(pieces[0], arena.at(0));
  EXPECT_EQ(all, 42u);
  EXPECT_EQ(solo->sent().total(), 0u);
  EXPECT_EQ(world->exchange("text"), std::vector<std::string>{"text"});
}

TEST(Solo, AFailureEndsLaterCollectives) {
  const auto world = solo_world();
  world->report_failure("the disk is full", Exit::failed);
  EXPECT_THROW(world->barrier(), Aborted);
}

}  // namespace
}  // namespace strata::comm
