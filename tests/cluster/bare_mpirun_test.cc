// Nodes that are lost without launch: the ranks name the lost node and end. mpirun itself may wait for the node as long
// as TCP does (docs/guide.md).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>

#include "tests/cluster/cluster.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct BareMpirun : ClusterRun {
  static auto says(const std::string& text) {
    return [text](const std::string&, const std::string& errors) { return errors.find(text) != std::string::npos; };
  }
};

TEST_F(BareMpirun, AKilledNodeIsNamedAndTheOthersEnd) {
  const Cluster cluster(3);
  Running running(cluster.in("n1", mpirun({"control.timeout=4"})));
  ASSERT_TRUE(running.wait_until(says("step 50/"), 120));
  cluster.kill("n3");
  EXPECT_TRUE(running.wait_until(says("node n3 (ranks 4 to 5) is lost: not heard from for "), 45));
  for (const char* node : {"n1", "n2"}) EXPECT_EQ(ranks_left(cluster, node), 0) << node;
}

TEST_F(BareMpirun, ADisconnectedNodeIsNamedAndAllRanksEnd) {
  const Cluster cluster(3);
  Running running(cluster.in("n1", mpirun({"control.timeout=4"})));
  ASSERT_TRUE(running.wait_until(says("step 50/"), 120));
  cluster.cut("n3");
  EXPECT_TRUE(running.wait_until(says("node n3 (ranks 4 to 5) is lost: not heard from for "), 45));
  for (const char* node : {"n1", "n2", "n3"}) EXPECT_EQ(ranks_left(cluster, node), 0) << node;
}

// A rank of any node is killed. Its neighbour sees that, and no rank of another node repeats it.
struct KilledRankOfANode : BareMpirun, testing::WithParamInterface<std::tuple<const char*, int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KilledRankOfANode,
                         testing::Values(std::tuple("parallel.tensor=2", 0, "data 0, tensor 0"),
                                         std::tuple("parallel.tensor=2", 3, "data 1, tensor 1"),
                                         std::tuple("parallel.stages=2", 1, "data 1, stage 0"),
                                         std::tuple("parallel.stages=2", 4, "data 1, stage 1")));

TEST_P(KilledRankOfANode, IsNamedOnceByItsNeighbour) {
  const auto [mesh, rank, place] = GetParam();
  const std::string node = fmt::format("n{}", 1 + rank / 2);
  const Cluster cluster(3);
  Running running(cluster.in("n1", mpirun({mesh})));
  ASSERT_TRUE(running.wait_until(says("step 50/"), 120));
  signal_rank(cluster, node, rank, "KILL");
  const Outcome outcome = running.wait(60);
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.complaints(),
              ElementsAre(AllOf(HasSubstr(fmt::format(" on {} ends: rank {} ({}, pid ", node, rank, place)),
                                HasSubstr(fmt::format(" on {}) ended without a message", node)),
                                StartsWith(fmt::format("rank {} (", rank ^ 1)))))
      << outcome.all();
}

// mpirun runs on another node: no process watches all nodes any more, and each node's ranks end by themselves.
TEST_F(BareMpirun, AKilledNodeOfRankZeroIsNamedAndTheOthersEnd) {
  const Cluster cluster(4);
  Running running(cluster.in("n4", mpirun({"control.timeout=4"})));
  ASSERT_TRUE(running.wait_until(says("step 50/"), 120));
  cluster.kill("n1");
  EXPECT_TRUE(running.wait_until(says("rank 0 on n1 was not heard from on n3 (ranks 4 to 5) for "), 45));
  for (const char* node : {"n2", "n3"}) EXPECT_EQ(ranks_left(cluster, node), 0) << node;
}

TEST_F(BareMpirun, AShortInterruptionOnlyDelaysTheRun) {
  const std::string bits = untouched();
  const Cluster cluster(3);
  Running running(cluster.in("n1", mpirun({"control.timeout=15"})));
  ASSERT_TRUE(running.wait_until(says("step 50/"), 120));
  cluster.cut("n3");
  std::this_thread::sleep_for(std::chrono::seconds(5));
  cluster.join("n3");
  const Outcome outcome = running.wait(240);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("done after step 400"), Not(HasSubstr("lost"))));
  EXPECT_EQ(weights_hash(), bits);
}

}  // namespace
}  // namespace strata::tests
