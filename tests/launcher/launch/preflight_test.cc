#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/launch/launch.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

NodeCheck node(const std::string& host) {
  NodeCheck out;
  out.host = host;
  out.facts.program = "1234";
  out.facts.processor = "a processor";
  out.facts.libraries = "a library";
  out.facts.cores = 8;
  out.facts.memory = std::uint64_t{64} << 30;
  out.facts.memlock = ~std::uint64_t{0};
  out.facts.interfaces = {{"eth0", "10.0.0.1"}};
  out.clock_ahead = 0;
  out.gflop_per_s = 100;
  out.gbit_per_s = 10;
  return out;
}

struct Preflight : testing::Test {
  std::vector<NodeCheck> nodes = {node("n1"), node("n2"), node("n3"), node("n4")};
  runtime::Recipe recipe;
  std::optional<std::string> interface;

  std::vector<PreflightFinding> findings() const { return find_problems(nodes, recipe, "1234", interface); }
  static auto refusal(const testing::Matcher<std::string>& text) {
    return AllOf(Field(&PreflightFinding::text, text), Field(&PreflightFinding::refuses, true));
  }
  static auto warning(const testing::Matcher<std::string>& text) {
    return AllOf(Field(&PreflightFinding::text, text), Field(&PreflightFinding::refuses, false));
  }
};

TEST_F(Preflight, AcceptsIdenticalNodes) {
  EXPECT_THAT(findings(), IsEmpty());
  nodes.resize(1);
  EXPECT_THAT(findings(), IsEmpty());
}

TEST_F(Preflight, RefusesADifferentBuild) {
  nodes[2].facts.program = "5678";
  EXPECT_THAT(findings(), ElementsAre(refusal(AllOf(HasSubstr("n3 has a different build"), HasSubstr("install")))));
}

TEST_F(Preflight, RefusesASecondNameOfANode) {
  nodes[0].facts.machine = nodes[2].facts.machine = "a boot and a network";
  nodes[1].facts.machine = "another network";
  EXPECT_THAT(findings(), ElementsAre(refusal(AllOf(HasSubstr("n1 and n3 are names of the same node"),
                                                    HasSubstr("use one name"), HasSubstr("--no-preflight")))));
  // Virtual machines restored from one snapshot.
  nodes[2].facts.interfaces = {{"eth0", "10.0.0.3"}};
  EXPECT_THAT(findings(), IsEmpty());
}

TEST_F(Preflight, WarnsOfDifferencesThatAffectBits) {
  nodes[0].facts.processor = "an older one";
  nodes[1].facts.libraries = "another library";
  nodes[3].facts.gpus = {"a GPU"};
  EXPECT_THAT(findings(),
              ElementsAre(warning(AllOf(HasSubstr("n1 has a different kind of processor"), HasSubstr("an older one"))),
                          warning(HasSubstr("n2 has a different library")),
                          warning(HasSubstr("n4 has a different set of GPUs"))));
}

// Below 0.8 of the median, a node is slow.
TEST_F(Preflight, NamesSlowNodes) {
  nodes[1].gflop_per_s = 81;
  nodes[2].gbit_per_s = 8.1;
  nodes[3].facts.memory = std::uint64_t{52} << 30;
  EXPECT_THAT(findings(), IsEmpty());
  nodes[1].gflop_per_s = 79;
  nodes[2].gbit_per_s = 7.9;
  nodes[3].facts.memory = std::uint64_t{51} << 30;
  EXPECT_THAT(findings(),
              ElementsAre(warning(AllOf(HasSubstr("n4 has 51.0 GiB of memory, 80% of the median"))),
                          warning(AllOf(HasSubstr("n2 has 79.0 GFLOP/s of products, 79%"), HasSubstr("throttled"))),
                          warning(AllOf(HasSubstr("n3 has 7.9 Gbit/s over its links, 79%"), HasSubstr("cable")))));
}

TEST_F(Preflight, WarnsOfWrongClocks) {
  for (NodeCheck& one : nodes) one.clock_ahead = 100;  // this machine's own clock is the wrong one
  EXPECT_THAT(findings(), IsEmpty());
  nodes[1].clock_ahead = 97;
  EXPECT_THAT(findings(), ElementsAre(warning(AllOf(HasSubstr("n2's clock is 3.0 s behind"), HasSubstr("chrony")))));
}

TEST_F(Preflight, RefusesUnusableDrivesGpusAndLinks) {
  nodes[0].facts.drives = {{"/scratch", "memory.nvme: /scratch is not a folder", "", 0}};
  nodes[1].problems = {"no connection to 10.0.0.1 port 5: refused"};
  EXPECT_THAT(findings(), ElementsAre(refusal(HasSubstr("n1: memory.nvme: /scratch is not a folder")),
                                      refusal(HasSubstr("n2: no connection to 10.0.0.1"))));
  nodes = {node("n1"), node("n2")};
  for (NodeCheck& one : nodes) one.facts.gpus = {"a GPU"};
  nodes[1].facts.gpus.clear();
  recipe.device.kind = runtime::DeviceKind::cuda;
  EXPECT_THAT(findings(),
              ElementsAre(refusal(AllOf(HasSubstr("n2 has no GPU"), HasSubstr("device.kind"))), testing::_));
}

// A file that no node sees does not exist. A file that only some nodes see is not shared.
TEST_F(Preflight, RefusesFilesThatANodeCannotSee) {
  nodes[1].unseen = {"data.train: no file matches a", "model.path: no file matches m"};
  nodes[3].unseen = {"data.train: no file matches a"};
  EXPECT_THAT(findings(),
              ElementsAre(refusal(AllOf(HasSubstr("on n2, n4, data.train: no file matches a (other nodes see it"),
                                        HasSubstr("a file system that all share"))),
                          refusal(HasSubstr("on n2, model.path: no file matches m"))));
  for (NodeCheck& one : nodes) one.unseen = {"data.train: no file matches a"};
  EXPECT_THAT(findings(), ElementsAre(refusal("data.train: no file matches a")));
}

TEST_F(Preflight, WarnsOfALowLockedMemoryLimit) {
  nodes[1].facts.memlock = 65536;
  EXPECT_THAT(findings(), IsEmpty());
  recipe.memory.nvme = {"/scratch"};
  EXPECT_THAT(findings(), ElementsAre(warning(AllOf(HasSubstr("n2 lets a process lock"), HasSubstr("ulimit -l")))));
}

TEST_F(Preflight, RefusesAMissingInterface) {
  interface = "eth0";
  nodes[3].facts.interfaces = {{"eno1", "10.0.0.4"}, {"ib0", "10.1.0.4"}};
  EXPECT_THAT(findings(),
              ElementsAre(refusal(HasSubstr("n4 has no interface eth0 with an address: it has eno1, ib0"))));
}

TEST_F(Preflight, PrintsALinePerNode) {
  nodes[1].facts.drives = {{"/a", "", "", std::uint64_t{3} << 30}, {"/b", "", "", std::uint64_t{1} << 30}};
  nodes[1].gflop_per_s.reset();
  nodes[1].clock_ahead = -0.0123;
  nodes[2].clock_ahead = -0.0004;
  const std::string text = table(nodes);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
  EXPECT_THAT(text, AllOf(HasSubstr("products"), HasSubstr("100 GFLOP/s"), HasSubstr("10.0 Gbit/s"),
                          HasSubstr("4.00 GiB"), HasSubstr("-12 ms"), HasSubstr("unlimited"), Not(HasSubstr("-0 ms"))));
}

TEST_F(Preflight, FindsTheInterfaceOfTheNodesNames) {
  std::vector<NodeCheck> here = {node("127.0.0.1"), node("127.0.0.2")};
  EXPECT_EQ(common_interface(here), std::nullopt);
  here[0].facts.interfaces = {{"eth0", "10.0.0.1"}, {"lo", "127.0.0.1"}};
  here[1].facts.interfaces = {{"lo", "127.0.0.2"}};
  EXPECT_EQ(common_interface(here), "lo");
  here[1].facts.interfaces = {{"eth1", "127.0.0.2"}};
  EXPECT_EQ(common_interface(here), std::nullopt);
  // Debian's installer writes this line.
  here[1] = node("127.0.1.1");
  here[0].facts.interfaces = {{"eth0", "127.0.0.1"}};
  EXPECT_EQ(common_interface(here), "eth0");
}

}  // namespace
}  // namespace strata::launcher
