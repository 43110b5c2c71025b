#include "launcher/control/watch/node_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "comm/communicator.h"
#include "tests/comm/run_threads.h"

namespace strata::launcher::control {
namespace {

TEST(NodeMemoryTest, ExplainsWhyRanksOfAMachineAreSeparateNodes) {
  comm::run_threads(2, [](comm::World& world) {
    const NodeMemory memory(world);
    EXPECT_EQ(memory.map().nodes.size(), 1U);
    EXPECT_EQ(memory.apart(), "");
  });
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);  // no memory can be shared, because there is no descriptor for it
  comm::run_threads(2, [](comm::World& world) {
    const NodeMemory memory(world);
    EXPECT_EQ(memory.map().nodes.size(), 2U);
    EXPECT_THAT(memory.apart(), testing::AllOf(testing::StartsWith("rank 0 on "), testing::HasSubstr("open files")))
        << world.rank();
  });
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// Protobuf refuses an incomplete character.
TEST(NodeMemoryTest, TruncatesALongVerdictBetweenCharacters) {
  const auto world = comm::solo_world();
  NodeMemory memory(*world);
  std::string text = "x";
  while (text.size() < 3000) text += "\xe2\x82\xac";  // a euro sign
  EXPECT_TRUE(memory.give({text, 0, 0}));
  const std::string kept = memory.verdict()->text;
  EXPECT_GT(kept.size(), 1000U);
  EXPECT_EQ(kept.size() % 3, 1U);
  EXPECT_EQ(kept, text.substr(0, kept.size()));
  NodeMemory other(*world);
  EXPECT_TRUE(other.give({std::string(5000, 'x'), 7, 0}));
  EXPECT_EQ(other.verdict()->text.find_first_not_of('x'), std::string::npos);
  EXPECT_LT(other.verdict()->text.size(), 5000U);
  EXPECT_EQ(other.verdict()->rank, 7);
}

TEST(MapNodesTest, DistinguishesNodesByNameAndLocalRanks) {
  const NodeMap block = map_nodes({{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}});
  EXPECT_THAT(block.node_of, testing::ElementsAre(0, 0, 1, 1));
  const NodeMap robin = map_nodes({{"a", 0}, {"b", 0}, {"a", 1}, {"b", 1}});
  EXPECT_THAT(robin.node_of, testing::ElementsAre(0, 1, 0, 1));
  const NodeMap same_name = map_nodes({{"node", 0}, {"node", 1}, {"node", 0}, {"node", 1}});
  EXPECT_THAT(same_name.node_of, testing::ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(same_name.nodes[1].ranks, testing::ElementsAre(2, 3));
}

}  // namespace
}  // namespace strata::launcher::control
