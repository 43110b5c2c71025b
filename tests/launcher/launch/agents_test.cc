#include "launcher/launch/agents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "launcher/launch/launch.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const Host kFirst{"198.51.100.1", {}}, kSecond{"198.51.100.2", {}};  // addresses reserved for documentation

// Agents of two nodes, started by a fake ssh. It prints an agent's facts, keeps what it receives, and ends once a file
// named "end" exists. The second node never answers.
struct AgentsOfTwo : testing::Test {
  AgentsOfTwo() : path_(std::getenv("PATH")) {
    folder_.write("facts", to_json(NodeFacts{}) + "\n");
    std::filesystem::permissions(folder_.write("ssh",
                                               "#!/bin/bash\nwhile [ \"${1:0:11}\" != 198.51.100. ]; do shift; done\n"
                                               "[ $1 = 198.51.100.1 ] || exec sleep 600\ncat " +
                                                   file("facts") + "\nwhile [ ! -e " + file("end") +
                                                   " ]; do if read -t 0.1 line; then echo $line >>" + file("told") +
                                                   "; elif [ $? -le 128 ]; then break; fi; done\n"),
                                 std::filesystem::perms::owner_all);
    setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }
  ~AgentsOfTwo() override {
    folder_.write("end", "");
    setenv("PATH", path_.c_str(), 1);
  }
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

  tests::ScratchFolder folder_;
  std::string path_;
  Allocation allocation_;
};

TEST_F(AgentsOfTwo, AnAgentThatEndsDuringTheWaitHasAProblem) {
  bool ends = false;
  Agents agents(allocation_, "run", 300, {}, [&] {
    if (ends) folder_.write("end", "");
  });
  agents.start({kFirst}, 60);
  ASSERT_TRUE(agents.answers(kFirst.name)) << agents.problem(kFirst.name);
  // The first agent ends while launch waits for the second one.
  ends = true;
  agents.start({kFirst, kSecond}, 5);
  EXPECT_FALSE(agents.answers(kFirst.name));
  ASSERT_TRUE(agents.problems().contains(kFirst.name));
  EXPECT_THAT(agents.problems().at(kFirst.name), HasSubstr("198.51.100.1 no longer responds: its connection ended"));
  EXPECT_THAT(agents.problem(kSecond.name), HasSubstr("198.51.100.2 does not respond within 5 s"));
}

// A program of another version reports other facts. That is an error of its node, and no other agent ends.
TEST_F(AgentsOfTwo, AnAgentOfAnotherVersionIsADifferentBuild) {
  folder_.write("facts", "{\"greeting\":1}\n{\"name\":\"n\",\"program\":\"1234\"}\n");
  Agents agents(allocation_, "run", 300, {}, [] {});
  agents.start({kFirst}, 60);
  EXPECT_FALSE(agents.answers(kFirst.name));
  EXPECT_THAT(agents.problem(kFirst.name),
              HasSubstr("198.51.100.1 has a different build of strata than the node that launches"));
}

// An agent may end even later, when no wait notices it.
TEST_F(AgentsOfTwo, AnAgentThatEndsLaterHasAProblemToo) {
  Agents agents(allocation_, "run", 300, {}, [] {});
  agents.start({kFirst}, 60);
  ASSERT_TRUE(agents.answers(kFirst.name)) << agents.problem(kFirst.name);
  folder_.write("end", "");
  for (int tries = 0; tries < 600 && agents.answers(kFirst.name); ++tries) agents.attend(50);
  EXPECT_FALSE(agents.answers(kFirst.name));
  EXPECT_THAT(agents.problem(kFirst.name), HasSubstr("198.51.100.1 no longer responds"));
}

// The node sent its facts, but nothing else. With a gap in the table, launch would start a run that this node blocks.
TEST_F(AgentsOfTwo, ANodeWithoutMeasurementsIsRefusedByName) {
  const std::string all = folder_.read("ssh");
  folder_.write("ssh", all.substr(0, all.find("[ $1")) + all.substr(all.find("cat ")));
  Agents agents(allocation_, "run", 300, {}, [] {});
  agents.start({kFirst, kSecond}, 60);
  const std::vector<NodeCheck> nodes = look_at(agents, {kFirst, kSecond}, {}, {}, std::nullopt,
                                               {.files = 0.2, .products = 0.2, .port = 0.2, .link = 0.2});
  std::vector<std::string> refused;
  for (const PreflightFinding& finding : find_problems(nodes, {}, "", std::nullopt))
    if (finding.refuses) refused.push_back(finding.text);
  EXPECT_THAT(refused,
              testing::IsSupersetOf({testing::StartsWith("198.51.100.1: it did not complete a second of products in"),
                                     testing::StartsWith("198.51.100.2: it did not complete a second of products in"),
                                     testing::StartsWith("198.51.100.1: it opened no port for its link in"),
                                     testing::StartsWith("198.51.100.2: it opened no port for its link in")}));
}

// A node that comes back must not be another name of one that is in use.
TEST_F(AgentsOfTwo, ASecondNameOfAUsedNodeIsUnfit) {
  NodeFacts facts;
  facts.program = program_hash();
  facts.machine = "a boot and a network";
  folder_.write("facts", to_json(facts) + "\n");
  const std::string all = folder_.read("ssh");
  folder_.write("ssh", all.substr(0, all.find("[ $1")) + all.substr(all.find("cat ")));
  Agents agents(allocation_, "run", 300, {}, [] {});
  agents.start({kFirst, kSecond}, 60);
  ASSERT_TRUE(agents.answers(kFirst.name) && agents.answers(kSecond.name));
  EXPECT_EQ(why_unfit(agents, kSecond, {}, {}, std::nullopt, {}), "");
  EXPECT_EQ(why_unfit(agents, kSecond, {}, {}, std::nullopt, {"198.51.100.3"}), "") << "which does not answer";
  EXPECT_THAT(why_unfit(agents, kSecond, {}, {}, std::nullopt, {kFirst.name}),
              HasSubstr("198.51.100.1 and 198.51.100.2 are names of the same node"));
}

// With ControlPersist, an ssh process that stays for the next call holds the pipes of one that has ended.
TEST_F(AgentsOfTwo, DoesNotWaitForAnEndedAgentWhosePipesAreHeld) {
  folder_.write("ssh", "#!/bin/bash\necho 'a@b: Permission denied (publickey).' >&2\nsleep 60 & exit 255\n");
  Agents agents(allocation_, "run", 300, {}, [] {});
  const auto begin = std::chrono::steady_clock::now();
  agents.start({kFirst}, 60);
  EXPECT_THAT(agents.problem(kFirst.name), HasSubstr("ssh-copy-id"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// control.timeout = 0.
TEST_F(AgentsOfTwo, WithoutATimeoutNoAgentIsLostOrPolled) {
  Agents agents(allocation_, "run", 0, {}, [] {});
  agents.start({kFirst}, 60);
  ASSERT_TRUE(agents.answers(kFirst.name)) << agents.problem(kFirst.name);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) {
    agents.attend(10);
    EXPECT_THAT(agents.lost(), IsEmpty());
  }
  std::istringstream told(std::filesystem::exists(file("told")) ? folder_.read("told") : "");
  int pings = 0;
  for (std::string line; std::getline(told, line);) ++pings;
  EXPECT_LE(pings, 4);
  agents.start({kFirst}, 60);
  EXPECT_TRUE(agents.answers(kFirst.name));
}

}  // namespace
}  // namespace strata::launcher
