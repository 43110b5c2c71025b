#include "launcher/launch/ranks/rank_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tests/failure.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// The argument after `option`.
std::string after(const std::vector<std::string>& words, const std::string& option) {
  const auto it = std::find(words.begin(), words.end(), option);
  return it == words.end() || it + 1 == words.end() ? "" : *(it + 1);
}

struct RankProgram : testing::Test {
  Allocation allocation;
  RankStart start{{{"n1", 2}, {"n2", 1}}, {"train", "r.toml"}, {"STRATA_X"}, "run-1", {}, false};
};

TEST_F(RankProgram, StartsWithMpirun) {
  const Program program = rank_program(allocation, start);
  EXPECT_EQ(program.words.front(), "mpirun");
  EXPECT_EQ(after(program.words, "--host"), "n1:2,n2:1");
  EXPECT_EQ(after(program.words, "-n"), "3");
  EXPECT_EQ(after(program.words, "train"), "r.toml");
  EXPECT_EQ(after(program.words, "plm_rsh_args"), "-o BatchMode=yes -o ConnectTimeout=10");
  EXPECT_EQ(after(program.words, "-x"), "STRATA_X");
  EXPECT_THAT(program.words, Contains("STRATA_LAUNCH"));
  EXPECT_THAT(program.environment, Contains("STRATA_LAUNCH=run-1"));
  EXPECT_EQ(std::count(program.words.begin(), program.words.end(), "--allow-run-as-root"), geteuid() == 0);
  EXPECT_THAT(program.environment, Contains("STRATA_LAUNCH_RESUME=auto"));
  start.resume = "none";
  const Program other = rank_program(allocation, start);
  EXPECT_THAT(other.words, Contains("STRATA_LAUNCH_RESUME"));
  EXPECT_THAT(other.environment, Contains("STRATA_LAUNCH_RESUME=none"));
}

// The same with Open MPI 5, whose daemons have their own parameters.
TEST_F(RankProgram, StartsWithPrterun) {
  setenv("OMPI_MCA_plm_rsh_args", "-p 2222", 1);
  setenv("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh", 1);
  allocation.starter = Starter::prterun;
  start.interface = "ib0";
  Program program = rank_program(allocation, start);
  EXPECT_EQ(program.words.front(), "mpirun");
  EXPECT_EQ(after(program.words, "--output"), "tag:raw");
  EXPECT_EQ(after(program.words, "--host"), "n1:2,n2:1");
  EXPECT_EQ(after(program.words, "plm_ssh_args"), "-p 2222 -o BatchMode=yes -o ConnectTimeout=10");
  EXPECT_EQ(after(program.words, "plm_ssh_agent"), "/etc/mpi/kubexec.sh");
  EXPECT_EQ(after(program.words, "prte_default_hostfile"), "none");
  EXPECT_TRUE(program.holds_term);
  EXPECT_EQ(after(program.words, "btl_tcp_disable_family"), "6");
  EXPECT_EQ(after(program.words, "btl_tcp_if_include"), "ib0");
  EXPECT_EQ(after(program.words, "prte_if_include"), "ib0");
  EXPECT_EQ(std::find(program.words.begin(), program.words.end(), "prte_if_include")[-1], "--prtemca");
  EXPECT_THAT(program.words, Not(Contains("--tag-output")));

  setenv("PRTE_MCA_plm_ssh_args", "-p 3333", 1);
  setenv("PRTE_MCA_prte_if_exclude", "eth9", 1);
  program = rank_program(allocation, start);
  EXPECT_EQ(after(program.words, "plm_ssh_args"), "-p 3333 -o BatchMode=yes -o ConnectTimeout=10");
  EXPECT_THAT(program.words, Not(Contains("prte_if_include")));
  EXPECT_THAT(interface_variables(), Contains("PRTE_MCA_prte_if_exclude=eth9"));
  for (const char* name :
       {"OMPI_MCA_plm_rsh_args", "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_args", "PRTE_MCA_prte_if_exclude"})
    unsetenv(name);
}

TEST_F(RankProgram, StartsWithSrun) {
  allocation.starter = Starter::srun;
  const Program program = rank_program(allocation, start);
  EXPECT_EQ(program.words.front(), "srun");
  for (const char* word : {"--mpi=pmix", "--nodes=2", "--ntasks=3", "--nodelist=n1,n1,n2", "--label", "--export=ALL"})
    EXPECT_THAT(program.words, Contains(word));
  EXPECT_EQ(after(program.words, "train"), "r.toml");
  EXPECT_THAT(program.environment, Contains("STRATA_LAUNCH=run-1"));
}

// The interface applies to MPI, its daemons, and NCCL, which takes a name for a prefix unless told otherwise.
TEST_F(RankProgram, AppliesOneInterfaceToAll) {
  start.interface = "ib0";
  EXPECT_THAT(interface_variables(), testing::IsEmpty());
  const Program by_mpirun = rank_program(allocation, start);
  EXPECT_EQ(after(by_mpirun.words, "btl_tcp_if_include"), "ib0");
  EXPECT_EQ(after(by_mpirun.words, "oob_tcp_if_include"), "ib0");
  EXPECT_THAT(by_mpirun.words, Contains("NCCL_SOCKET_IFNAME"));
  EXPECT_THAT(by_mpirun.environment, Contains("NCCL_SOCKET_IFNAME==ib0"));
  allocation.starter = Starter::srun;
  const Program by_srun = rank_program(allocation, start);
  EXPECT_THAT(by_srun.environment, Contains("OMPI_MCA_btl_tcp_if_include=ib0"));
  EXPECT_THAT(by_srun.words, Not(Contains("-x")));
}

// If the interface comes only from the nodes' names, the user's exported variables win. --interface wins over them.
TEST_F(RankProgram, UserVariablesOverrideRoutes) {
  setenv("NCCL_SOCKET_IFNAME", "eth1", 1);
  setenv("OMPI_MCA_btl_tcp_if_exclude", "lo", 1);
  start.interface = "eth0";
  const Program by_mpirun = rank_program(allocation, start);
  EXPECT_THAT(by_mpirun.words, Not(Contains("btl_tcp_if_include")));
  EXPECT_EQ(after(by_mpirun.words, "oob_tcp_if_include"), "eth0");
  EXPECT_THAT(by_mpirun.environment, Not(Contains(testing::StartsWith("NCCL_SOCKET_IFNAME"))));
  EXPECT_THAT(interface_variables(), testing::ElementsAre("OMPI_MCA_btl_tcp_if_exclude=lo", "NCCL_SOCKET_IFNAME=eth1"));
  allocation.starter = Starter::srun;
  EXPECT_THAT(rank_program(allocation, start).environment,
              Not(Contains(testing::StartsWith("OMPI_MCA_btl_tcp_if_include"))));
  start.interface_asked = true;
  EXPECT_THAT(rank_program(allocation, start).environment, Contains("OMPI_MCA_btl_tcp_if_include=eth0"));
  EXPECT_THAT(rank_program(allocation, start).environment, Contains("NCCL_SOCKET_IFNAME==eth0"));
  unsetenv("NCCL_SOCKET_IFNAME");
  unsetenv("OMPI_MCA_btl_tcp_if_exclude");
}

struct Environment : testing::Test {
  Environment() {
    setenv("STRATA_X", "a b", 1);
    setenv("NCCL_X", "1", 1);
    setenv("MY_X", "1", 1);
    setenv("LD_LIBRARY_PATH", "/x", 1);
  }
  ~Environment() override {
    for (const char* name : {"STRATA_X", "NCCL_X", "MY_X", "LD_LIBRARY_PATH", "MY_NEW"}) unsetenv(name);
  }
};

TEST_F(Environment, SelectsTheVariablesForRanks) {
  EXPECT_THAT(forwarded_names({}), AllOf(Contains("STRATA_X"), Contains("NCCL_X"), Contains("LD_LIBRARY_PATH"),
                                         Not(Contains("MY_X")), Not(Contains("HOME"))));
  EXPECT_THAT(forwarded_names({"MY_X", "MY_NEW=v=w", "STRATA_X"}),
              AllOf(Contains("MY_X"), Contains("MY_NEW"), Contains("STRATA_X").Times(1)));
  EXPECT_STREQ(std::getenv("MY_NEW"), "v=w");
}

TEST_F(Environment, RefusesUnsetAndInvalidNames) {
  EXPECT_FAILURE(forwarded_names({"MY_NEW"}), Exit::usage, AllOf(HasSubstr("MY_NEW is not set"), HasSubstr("export")));
  for (const char* wrong : {"", "=x", "1X=2", "A B=1", "A-B"})
    EXPECT_FAILURE(forwarded_names({wrong}), Exit::usage, HasSubstr("is not a variable's name"));
}

TEST_F(Environment, SelectsTheVariablesForAgents) {
  EXPECT_THAT(agent_environment(),
              AllOf(Contains("STRATA_X=a b"), Contains("LD_LIBRARY_PATH=/x"), Not(Contains("NCCL_X=1"))));
}

}  // namespace

}  // namespace strata::launcher
