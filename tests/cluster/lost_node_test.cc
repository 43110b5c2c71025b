// Nodes are lost during a run. Under launch, the run continues on the remaining nodes, to the bits of an undisturbed
// run.
#include <gmock/gmock.h>
#include <simdjson.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/error.h"
#include "tests/cluster/cluster.h"

namespace strata::tests {
namespace {

using std::string_view_literals::operator""sv;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct LostNode : ClusterRun {
  static auto at_step(int step) {
    return [step](const std::string&, const std::string& errors) { return is_at_step(errors, step); };
  }
};

// A node loses power, so nothing announces its end.
TEST_F(LostNode, TheOthersContinueAfterANodeIsKilled) {
  const std::string bits = untouched();
  const Cluster cluster(3);
  Running running(cluster.in("n1", launch({"--hosts", "n1:2,n2:2,n3:2", "--no-preflight"})));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.kill("n3");
  const Outcome outcome = running.wait(300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr("node n3 (ranks 4 to 5) is lost"), HasSubstr("restart 1 of 3: 4 ranks on n1 (2), n2 (2)"),
                    HasSubstr("resumes after step ")));
  EXPECT_THAT(outcome.errors, HasSubstr("done after step 400"));
  EXPECT_EQ(weights_hash(), bits);
  EXPECT_THAT(events(), AllOf(HasSubstr(R"("event":"node_lost","nodes":["n3"])"),
                              HasSubstr(R"("event":"restart","nodes":["n1","n2"],"ranks":4)")));
}

// A pipeline continues with complete replicas: two of the three remaining ranks.
TEST_F(LostNode, CompleteReplicasOfAPipelineContinue) {
  const std::string bits = untouched();
  const Cluster cluster(3);
  const std::vector<std::string> sets = {"parallel.stages=2"};
  Running running(cluster.in("n1", launch({"--hosts", "n1:2,n2:1,n3:1", "--no-preflight"}, sets)));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.kill("n3");
  const Outcome outcome = running.wait(300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr("node n3 (rank 3: data 1, stage 1) is lost"),
                    HasSubstr("1 rank stays idle, on n1 (1): a run has as many whole replicas of 2 ranks as divide a "),
                    HasSubstr("restart 1 of 3: 2 ranks on n1 (1), n2 (1)")));
  EXPECT_EQ(weights_hash(), bits);
}

// Three ranks would divide a step, but not into groups of two.
TEST_F(LostNode, CompleteGroupsContinue) {
  const std::string bits = untouched();
  const Cluster cluster(3);
  Running running(cluster.in(
      "n1", launch({"--hosts", "n1:2,n2:1,n3:1", "--no-preflight"}, {"zero.stage=2", "zero.optimizer_group=2"})));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.kill("n3");
  const Outcome outcome = running.wait(300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("restart 1 of 3: 2 ranks on n1 (1), n2 (1)"));
  EXPECT_EQ(weights_hash(), bits);
}

TEST_F(LostNode, APipelineWithoutACompleteReplicaEnds) {
  const Cluster cluster(2);
  Running running(cluster.in("n1", launch({"--hosts", "n1:1,n2:1", "--no-preflight"}, {"parallel.stages=2"})));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.kill("n2");
  const Outcome outcome = running.wait(120);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::failed)) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("the 1 remaining node has room for 1 rank, but one replica of the "
                                        "model (parallel.stages = 2) needs 2 ranks"));
}

// training.micro_batch_size = auto is resolved once. Fewer ranks have room for more, but the number stays, and so do
// the bits.
TEST_F(LostNode, AnAutomaticMicroBatchStaysOnFewerRanks) {
  const std::vector<std::string> batch = {"training.global_batch_size=48", "zero.stage=0"};
  const auto bytes = [&](int size, int ranks) {
    std::vector<std::string> command = train(batch);
    command[1] = "plan";
    command.insert(command.end(), {"--set", "training.micro_batch_size=" + std::to_string(size), "--ranks",
                                   std::to_string(ranks), "--json", file("plan.json")});
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    simdjson::dom::parser parser;
    return parser.load(file("plan.json"))["memory"]["device"]["planned_peak_bytes"].get_uint64().value();
  };
  const std::uint64_t limit = bytes(2, 3);
  ASSERT_LT(limit, std::min({bytes(4, 3), bytes(8, 3), bytes(16, 3)}));
  ASSERT_GE(limit, bytes(4, 2)) << "two ranks would choose differently";
  std::vector<std::string> sets = batch;
  sets.emplace_back("training.micro_batch_size=2");
  const std::string bits = untouched(sets);
  sets.back() = "training.micro_batch_size=auto";
  sets.push_back("memory.device=" + std::to_string(limit));
  const Cluster cluster(3);
  const std::vector<std::string> command =
      cluster.in("n1", launch({"--hosts", "n1,n2,n3", "--no-preflight", "--min-nodes", "2"}, sets));
  Running running(command);
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.kill("n3");
  ASSERT_TRUE(running.wait_until(
      [](const auto&, const std::string& errors) {
        const std::size_t restart = errors.find("restart 1 of 3: 2 ranks on n1 (1), n2 (1)");
        return restart != errors.npos && errors.find(" tokens/s ", restart) != errors.npos;
      },
      120));
  // The run is stopped, and started by hand on the remaining nodes. The number then comes from the checkpoint.
  running.send(SIGUSR1);
  const Outcome stopped = running.wait(120);
  EXPECT_EQ(stopped.code, static_cast<int>(Exit::requeue)) << stopped.all();
  EXPECT_THAT(stopped.errors,
              AllOf(HasSubstr("training.micro_batch_size = auto: 2, the largest that fits"),
                    HasSubstr(" 8 micro-batches of 2 per rank"), HasSubstr("12 micro-batches of 2 per rank")));
  const Outcome rest = run(cluster.in("n1", launch({"--hosts", "n1,n2", "--no-preflight"}, sets)), 300);
  EXPECT_EQ(rest.code, 0) << rest.all();
  EXPECT_THAT(rest.errors, AllOf(HasSubstr("training.micro_batch_size = auto: 2, as in "),
                                 HasSubstr("12 micro-batches of 2 per rank")));
  EXPECT_EQ(weights_hash(), bits);
}

// Rank 0's node is lost; the launcher's node has no ranks. Metrics at an address of the lost node end with it.
TEST_F(LostNode, TheNodeOfRankZeroIsKilled) {
  const std::string bits = untouched();
  const Cluster cluster(3);
  const std::vector<std::string> sets = {"control.metrics=n1:9100", "control.metrics_public=true"};
  Running running(cluster.in("n3", launch({"--hosts", "n1:2,n2:2", "--no-preflight"}, sets)));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.kill("n1");
  const Outcome outcome = running.wait(300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr("node n1 (ranks 0 to 1) is lost"), HasSubstr("2 ranks on n2 (2)"), HasSubstr("n1:9100"),
                    HasSubstr("control.metrics=off: its address belongs to n1, but rank 0 is now on n2")));
  EXPECT_EQ(weights_hash(), bits);
}

// A cable that is unplugged for some seconds delays the run but ends nothing.
TEST_F(LostNode, TheRunContinuesAfterAShortInterruption) {
  const std::string bits = untouched();
  const Cluster cluster(3);
  // TCP retries less and less often, so it may find a restored link only after twice the time.
  Running running(cluster.in("n1", launch({"--hosts", "n1:2,n2:2,n3:2", "--no-preflight"}, {"control.timeout=15"})));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.cut("n3");
  std::this_thread::sleep_for(std::chrono::seconds(5));
  cluster.join("n3");
  const Outcome outcome = running.wait(300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(Not(HasSubstr("lost")), HasSubstr("n3 (ranks 4 to 5) is heard from again after "),
                                    HasSubstr("the run continues")));
  EXPECT_EQ(weights_hash(), bits);
}

// A node stays cut off: the others continue, and no process of the run remains on it.
TEST_F(LostNode, TheOthersContinueAndADisconnectedNodesRanksEnd) {
  const std::string bits = untouched();
  const Cluster cluster(3);
  Running running(cluster.in("n1", launch({"--hosts", "n1:2,n2:2,n3:2", "--no-preflight"})));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.cut("n3");
  const Outcome outcome = running.wait(300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("node n3 (ranks 4 to 5) is lost"));
  EXPECT_EQ(weights_hash(), bits);
  EXPECT_EQ(ranks_left(cluster, "n3"), 0);
}

// If too few are left, the run ends with a sentence that says so.
TEST_F(LostNode, FewerThanMinNodesEndsTheRun) {
  const Cluster cluster(2);
  Running running(cluster.in("n1", launch({"--hosts", "n1,n2", "--no-preflight", "--min-nodes", "2"})));
  ASSERT_TRUE(running.wait_until(at_step(30), 120));
  cluster.kill("n2");
  const Outcome outcome = running.wait(180);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::failed)) << outcome.all();
  EXPECT_THAT(last_line(outcome.errors), HasSubstr("1 of 2 nodes remains, but --min-nodes is 2"));
}

// The node is left out at the start, and is back at a restart.
TEST_F(LostNode, ANodeThatComesBackIsUsedAgain) {
  const std::string bits = untouched();
  const Cluster cluster(3);
  cluster.kill("n3");
  Running running(cluster.in("n1", launch({"--hosts", "n1:2,n2:2,n3:2", "--min-nodes", "1", "--no-preflight"})));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.revive("n3");
  signal_rank(cluster, "n2", 2, "KILL");
  ASSERT_TRUE(running.wait_until(
      [](const auto&, const std::string& errors) {
        return errors.find("6 ranks on n1 (2), n2 (2), n3 (2)") != std::string::npos;
      },
      120));
  const Outcome outcome = running.wait(300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("left out: n3"), HasSubstr("4 ranks on n1 (2), n2 (2)")));
  EXPECT_EQ(weights_hash(), bits);
}

TEST_F(LostNode, ANodeThatComesBackWithoutItsFilesStaysOut) {
  const Cluster cluster(3);
  run_.write_tokens("data/tokens.bin", 600);
  cluster.kill("n3");
  Running running(cluster.in("n1", launch({"--hosts", "n1:2,n2:2,n3:2", "--min-nodes", "1", "--no-preflight"},
                                          {"data.train=" + file("data/tokens.bin")})));
  ASSERT_TRUE(running.wait_until(at_step(50), 120));
  cluster.revive("n3");
  cluster.at("n3", "mount -t tmpfs tmpfs " + file("data"));
  signal_rank(cluster, "n2", 2, "KILL");
  const Outcome outcome = running.wait(300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("left out: n3: data.train: no file matches"),
                                    HasSubstr("restart 1 of 3: 4 ranks on n1 (2), n2 (2)")));
}

// A failure that repeats is retried --max-restarts times, after longer and longer waits.
TEST_F(LostNode, ARankThatIsKilledRepeatedly) {
  const Cluster cluster(2);
  Running running(cluster.in(
      "n1", launch({"--hosts", "n1,n2", "--no-preflight", "--max-restarts", "2"}, {"training.max_steps=100000"})));
  for (int start = 1; start <= 3; ++start) {
    ASSERT_TRUE(running.wait_until(
        [start](const auto&, const std::string& errors) {
          std::size_t runs = 0;
          for (std::size_t at = 0; (at = errors.find("ZeRO-3 over 2 ranks", at)) != std::string::npos; ++at) ++runs;
          return runs == static_cast<std::size_t>(start) && errors.rfind(" tokens/s ") > errors.rfind("ZeRO-3 over");
        },
        200));
    signal_rank(cluster, "n2", 1, "KILL");
  }
  const Outcome outcome = running.wait(240);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::failed)) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("starts again in 2 s, restart 1 of 2: 2 ranks on n1 (1), n2 (1)"),
                                    HasSubstr("starts again in 4 s, restart 2 of 2: 2 ranks on n1 (1), n2 (1)")));
  EXPECT_THAT(last_line(outcome.errors), AllOf(HasSubstr("--max-restarts 2"), HasSubstr("rank 1"))) << outcome.all();
  // The waits do get longer.
  simdjson::dom::parser parser;
  double announced = 0;
  std::vector<double> waits;
  const std::string all = events();
  for (const auto event : parser.parse_many(all)) {
    if (event["event"] == "restart"sv) announced = event["time"].get_double();
    if (event["event"] == "start"sv && announced > 0) waits.push_back(event["time"].get_double() - announced);
  }
  EXPECT_THAT(waits, testing::ElementsAre(testing::Ge(1.9), testing::Ge(3.9)));
}

}  // namespace
}  // namespace strata::tests
