#include "launcher/control/watch/node_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "comm/communicator.h"

namespace strata::launcher::control {
namespace {

TEST(NodeMemoryTest, SaysWhyRanksOfAMachineAreNodesOfTheirOwn) {
  comm::run_threads(2, [](comm::World& world) {
    const NodeMemory memory(world);
    EXPECT_EQ(memory.map().nodes.size(), 1U);
    EXPECT_EQ(memory.apart(), "");
  });
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);  // no memory can be shared, for want of a descriptor
  comm::run_threads(2, [](comm::World& world) {
    const NodeMemory memory(world);
    EXPECT_EQ(memory.map().nodes.size(), 2U);
    EXPECT_THAT(memory.apart(), testing::AllOf(testing::StartsWith("rank 0 on "), testing::HasSubstr("open files")))
        << world.rank();
  });
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace strata::launcher::control
