#include "launcher/launch/ranks/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/host/host.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Allocation, ReadsSlurmsListOfNumbers) {
  EXPECT_THAT(per_node("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(per_node("8"), ElementsAre(8));
  for (const char* wrong : {"", "x", "2(", "2(x", "2(x3", "2(y3)", "2 1", "2(x3)1"})
    EXPECT_THAT(per_node(wrong), IsEmpty()) << wrong;
}

TEST(Allocation, SpreadsRanksEvenlyWithinTheSlots) {
  const std::vector<Host> hosts = {{"a", 2}, {"b", 4}, {"c", {}}};
  EXPECT_THAT(distribute_ranks(hosts, 3, 1), ElementsAre(Share{"a", 1}, Share{"b", 1}, Share{"c", 1}));
  EXPECT_THAT(distribute_ranks(hosts, 7, 1), ElementsAre(Share{"a", 2}, Share{"b", 4}, Share{"c", 1}));
  EXPECT_THAT(distribute_ranks(hosts, 2, 1), ElementsAre(Share{"a", 1}, Share{"b", 1}));
  EXPECT_THAT(distribute_ranks(hosts, 8, 1), IsEmpty());
  EXPECT_THAT(distribute_ranks(hosts, 8, 2), ElementsAre(Share{"a", 2}, Share{"b", 4}, Share{"c", 2}));
  EXPECT_EQ(total(distribute_ranks(hosts, 7, 1)), 7);
  EXPECT_EQ(describe(distribute_ranks(hosts, 3, 1)), "a (1), b (1), c (1)");
}

TEST(Allocation, StartsTheRequestedRanksOrOnePerGpu) {
  EXPECT_EQ(ranks_on({"a", {}}, 0), 1);
  EXPECT_EQ(ranks_on({"a", {}}, 4), 4);
  EXPECT_EQ(ranks_on({"a", 2}, 4), 2);
  EXPECT_EQ(ranks_on({"a", 8}, 4), 8);
  EXPECT_EQ(ranks_on({"a", 64, true}, 8), 8) << "a job that requested no tasks";
  EXPECT_EQ(ranks_on({"a", 2, true}, 8), 2);
  EXPECT_EQ(ranks_on({"a", 64, true}, 0), 64);
}

TEST(Allocation, TurnsSshErrorsIntoAdvice) {
  EXPECT_THAT(why_not_reached("n2", "root@n2: Permission denied (publickey,password).\n", 255),
              AllOf(HasSubstr("n2 asks for a password"), HasSubstr("ssh-copy-id n2")));
  EXPECT_THAT(why_not_reached("n2", "Host key verification failed.\n", 255), HasSubstr("ssh-keyscan n2"));
  EXPECT_THAT(why_not_reached("n2", "env: '/x/strata': No such file or directory\n", 127),
              AllOf(HasSubstr("n2 has no "), HasSubstr("install the same build")));
  const std::string here = std::filesystem::current_path().string(), program = own_program().string();
  EXPECT_THAT(why_not_reached("n2", "sh: 1: cd: can't cd to " + here + "\n", 2), HasSubstr("n2 has no folder " + here));
  EXPECT_THAT(why_not_reached("n2", "slurmstepd: error: execve(): " + program + ": No such file or directory\n", 2),
              HasSubstr("n2 has no " + program));
  // The missing file may be something other than this folder or the program.
  EXPECT_EQ(why_not_reached("n2", "~/.bashrc: cd: /old: No such file or directory\nkex: Connection reset\n", 255),
            "n2 does not respond: kex: Connection reset");
  EXPECT_EQ(why_not_reached("n2", "strata: /sys/x: No such file or directory\n", 1),
            "n2 does not respond: strata: /sys/x: No such file or directory");
  EXPECT_THAT(why_not_reached("n2", "strata: error while loading shared libraries: libx.so.1: cannot open\n", 127),
              AllOf(HasSubstr("a library is missing"), HasSubstr("libx.so.1")));
  EXPECT_EQ(why_not_reached("n2", "x\nssh: connect to host n2 port 22: No route to host\r\n", 255),
            "n2 does not respond: ssh: connect to host n2 port 22: No route to host");
  EXPECT_EQ(why_not_reached("n2",
                            "srun: error: Unable to create step for job 3: Requested node configuration is not "
                            "available\n",
                            1),
            "Slurm has removed n2 from the job: scontrol show node n2 says why");
  EXPECT_EQ(why_not_reached("n2", "", 255), "n2 does not respond");
}

// A Slurm job of two nodes, with fakes of Slurm's programs.
struct SlurmJob : testing::Test {
  SlurmJob() : path_(std::getenv("PATH")) {
    program("scontrol", "echo localhost; echo 127.0.0.1");
    program("srun", "echo 'pmix pmi2' >&2");
    program("mpirun", "true");
    setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
    setenv("SLURM_JOB_ID", "12", 1);
    setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
    setenv("SLURM_JOB_CPUS_PER_NODE", "8(x2)", 1);
  }
  ~SlurmJob() override {
    setenv("PATH", path_.c_str(), 1);
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_CPUS_PER_NODE", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"})
      unsetenv(name);
  }
  void program(const std::string& name, const std::string& text) const {
    std::filesystem::permissions(folder_.write(name, "#!/bin/sh\n" + text + "\n"), std::filesystem::perms::owner_all);
  }

  tests::ScratchFolder folder_;
  std::string path_;
};

TEST_F(SlurmJob, ProvidesNodesAndTasks) {
  setenv("SLURM_NTASKS", "3", 1);
  setenv("SLURM_TASKS_PER_NODE", "2,1", 1);
  const Allocation job = find_allocation(std::nullopt);
  EXPECT_THAT(job.hosts, ElementsAre(Host{"localhost", 2}, Host{"127.0.0.1", 1}));
  EXPECT_EQ(job.ranks, 3);
  EXPECT_EQ(job.origin, "Slurm job 12");
  EXPECT_EQ(job.starter, Starter::srun);
  EXPECT_THAT(on_node(job, "localhost", {"strata"}, {}, false).words,
              testing::AllOf(testing::Contains("srun"), testing::Contains("--nodelist=localhost")));
}

// Without --ntasks, Slurm gives the number of processors, not the intended number of ranks.
TEST_F(SlurmJob, WithoutTasksProcessorsAreTheLimit) {
  const Allocation job = find_allocation(std::nullopt);
  EXPECT_THAT(job.hosts, ElementsAre(Host{"localhost", 8, true}, Host{"127.0.0.1", 8, true}));
  EXPECT_EQ(job.ranks, std::nullopt);
}

TEST_F(SlurmJob, WithoutPmixUsesMpirunAndGivesTheReason) {
  program("srun", "echo none pmi2");
  const Allocation job = find_allocation(std::nullopt);
  EXPECT_NE(job.starter, Starter::srun);
  EXPECT_THAT(job.why_not_srun, HasSubstr("no PMIx"));
  program("mpirun", "echo 'mpirun (Open MPI) 5.0.7'");
  EXPECT_EQ(find_allocation(std::nullopt).starter, Starter::prterun);
}

TEST_F(SlurmJob, PassesOnWhySrunFails) {
  program("srun", "echo 'srun: fatal: Could not establish a configuration source' >&2; exit 1");
  const Allocation job = find_allocation(std::nullopt);
  EXPECT_EQ(job.starter, Starter::mpirun);
  EXPECT_THAT(job.why_not_srun, AllOf(HasSubstr("(srun: fatal: Could not establish a configuration source)"),
                                      testing::Not(HasSubstr("no PMIx"))));
}

TEST_F(SlurmJob, HostsMustBelongToIt) {
  EXPECT_THAT(find_allocation("127.0.0.1:4").hosts, ElementsAre(Host{"127.0.0.1", 4}));
  EXPECT_FAILURE(find_allocation("127.0.0.1:9"), Exit::usage,
                 AllOf(HasSubstr("9 ranks"), HasSubstr("room for only 8")));
  // Without a number in --hosts, a node has the job's slots. --ranks-per-node is checked against them.
  EXPECT_THAT(find_allocation("127.0.0.1").hosts, ElementsAre(Host{"127.0.0.1", 8, true}));
  EXPECT_FAILURE(find_allocation("n9"), Exit::usage, AllOf(HasSubstr("n9"), HasSubstr("Slurm job 12 does not have")));
}

TEST(Allocation, ReadsTheVersionOfOpenMpi) {
  EXPECT_EQ(starter_of("mpirun (Open MPI) 4.1.4\n\nReport bugs to https://www.open-mpi.org/community/help/\n"),
            Starter::mpirun);
  EXPECT_EQ(starter_of("mpirun (Open MPI) 5.0.7\n"), Starter::prterun);
  EXPECT_EQ(starter_of("mpirun (Open MPI) 10.1\n"), Starter::prterun);
  EXPECT_EQ(starter_of("mpirun (IBM Spectrum MPI) 10.4.0\n"), Starter::mpirun);  // it is made of Open MPI 4
  EXPECT_EQ(starter_of(""), Starter::mpirun);
}

// A path and a value contain characters that a shell would interpret.
TEST(Allocation, QuotesWordsForTheNode) {
  Allocation allocation;
  allocation.hosts = {{"198.51.100.1", 1}};
  const Program program = on_node(allocation, "198.51.100.1", {"/a b/strata", "it's"}, {"STRATA_X=$1"}, true);
  ASSERT_EQ(program.words.front(), "ssh");
  EXPECT_THAT(program.words, testing::Contains("BatchMode=yes"));
  const ProgramResult result =
      run_program({{"sh", "-c", "set -- \"$1\"; printf %s \"${1##*&& exec env }\"", "sh", program.words.back()}}, 10);
  EXPECT_EQ(result.out, "'STRATA_X=$1' '/a b/strata' 'it'\\''s'\n");
}

TEST(Allocation, ThisMachineNeedsNoSsh) {
  Allocation allocation;
  const Program program = on_node(allocation, "localhost", {"strata", "x"}, {"A=b"}, false);
  EXPECT_THAT(program.words, ElementsAre("strata", "x"));
  EXPECT_THAT(program.environment, ElementsAre("A=b"));
}

// Other queues list nodes with one line per rank.
TEST(FindAllocation, ReadsTheNodesOfPbsAndLsf) {
  const tests::ScratchFolder folder;
  const std::string nodes = folder.write("nodes", "127.0.0.1\n127.0.0.1\n127.0.0.2\n");
  for (const char* name : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE"}) {
    setenv(name, nodes.c_str(), 1);
    const Allocation job = find_allocation(std::nullopt);
    EXPECT_THAT(job.hosts, ElementsAre(Host{"127.0.0.1", 2}, Host{"127.0.0.2", std::nullopt}));
    EXPECT_EQ(job.origin, name);
    EXPECT_THAT(find_allocation("127.0.0.3:4").hosts, ElementsAre(Host{"127.0.0.3", 4})) << "--hosts has precedence";
    unsetenv(name);
  }
  setenv("PE_HOSTFILE", nodes.c_str(), 1);
  EXPECT_FAILURE(find_allocation(std::nullopt), Exit::usage, HasSubstr("give --hosts a file"));
  unsetenv("PE_HOSTFILE");
}

}  // namespace
}  // namespace strata::launcher
