// strata launch over ssh and mpirun, on nodes that look real to every program.
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "tests/cluster/cluster.h"
#include "tests/source_dir.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct ClusterLaunch : ClusterRun {};

TEST_F(ClusterLaunch, ChecksStartsAndReports) {
  const Cluster cluster(3);
  const Outcome outcome =
      run(cluster.in("n1", launch({"--hosts", "n1:2,n2:2,n3:2", "--env", "MY_OWN=x"}, {"training.max_steps=30"})), 180);
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  // The resolved settings are printed once, then the table. mpirun's own output is not shown.
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr("strata: 6 ranks on n1 (2), n2 (2), n3 (2), of --hosts, started by mpirun"),
                    HasSubstr("training.max_steps = 30"), HasSubstr("GFLOP/s"), HasSubstr("Gbit/s"),
                    HasSubstr("MPI, NCCL and control use eth0, to which the nodes' names resolve\n"),
                    Not(HasSubstr("[n1:")), Not(HasSubstr("<stderr>"))));
  EXPECT_THAT(outcome.errors, HasSubstr("done after step 30"));
  EXPECT_EQ(weights_hash(), untouched({"training.max_steps=30"}));
  EXPECT_THAT(events(), AllOf(HasSubstr(R"("event":"start","nodes":["n1","n2","n3"],"ranks":6)"),
                              HasSubstr(R"("event":"end","nodes":["n1","n2","n3"],"ranks":6,"exit":0)")));
  EXPECT_THAT(run_.folder().read("logs/rank-00000.log"), HasSubstr("step 30/30"));
  EXPECT_TRUE(std::filesystem::exists(file("logs/rank-00005.log")));
}

// Every rank of every node has the variables of the launcher's environment and of --env.
TEST_F(ClusterLaunch, TheEnvironmentReachesEveryRank) {
  const Cluster cluster(2);
  // ranks of n2 that have the variables, seen from outside
  Running running(cluster.in("n1", [&] {
    std::vector<std::string> all = {"env", "STRATA_OWN=of strata", "OMPI_MCA_own=of mpi", "LD_LIBRARY_PATH=/nowhere"};
    for (std::string& word :
         launch({"--hosts", "n1,n2", "--env", "MY_OWN=my own", "--no-preflight"}, {"training.max_steps=100000"}))
      all.push_back(std::move(word));
    return all;
  }()));
  ASSERT_TRUE(running.wait_until([](const auto&, const std::string& errors) { return is_at_step(errors, 3); }, 120));
  const std::string seen =
      cluster
          .at("n2",
              "for p in $(pgrep -f 'strata train'); do grep -qz OMPI_COMM_WORLD_RANK=1 /proc/$p/environ || "
              "continue; tr '\\0' '\\n' </proc/$p/environ; done")
          .output;
  EXPECT_THAT(seen, AllOf(HasSubstr("STRATA_OWN=of strata\n"), HasSubstr("OMPI_MCA_own=of mpi\n"),
                          HasSubstr("LD_LIBRARY_PATH=/nowhere\n"), HasSubstr("MY_OWN=my own\n")));
  running.send(SIGUSR1);
  EXPECT_EQ(running.wait(180).code, static_cast<int>(Exit::requeue));
}

// The folder that all nodes share names the run. The program continues by ssh on the socket's node.
TEST_F(ClusterLaunch, ARunCanBeWatchedAndStoppedFromAnotherNode) {
  const Cluster cluster(2);
  Running running(cluster.in("n1", launch({"--hosts", "n1", "--no-preflight"}, {"training.max_steps=100000"})));
  ASSERT_TRUE(running.wait_until([](const auto&, const std::string& errors) { return is_at_step(errors, 3); }, 120));
  const Outcome status = run(cluster.in("n2", {kStrata, "ctl", "status", file("checkpoints")}), 60);
  EXPECT_EQ(status.code, 0) << status.all();
  EXPECT_THAT(status.output, AllOf(HasSubstr("training, gpt2 of 79.0K parameters, ZeRO-3, pid "), HasSubstr(" on n1\n"),
                                   HasSubstr(" planned, host ")));
  const Outcome stop = run(cluster.in("n2", {kStrata, "ctl", "stop", file("checkpoints")}), 60);
  EXPECT_THAT(stop.output, HasSubstr("with a checkpoint")) << stop.all();
  EXPECT_EQ(running.wait(120).code, static_cast<int>(Exit::requeue));
}

// After a successful stop, Strata's sentence is the last line, and the same command continues the run.
TEST_F(ClusterLaunch, SignalsReachTheRanks) {
  const Cluster cluster(2);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    Running running(cluster.in("n1", launch({"--hosts", "n1,n2", "--no-preflight"}, {"training.max_steps=100000"})));
    ASSERT_TRUE(running.wait_until(
        [](const auto&, const std::string& errors) { return errors.find(" tokens/s ") != std::string::npos; }, 120));
    running.send(signal);
    const Outcome outcome = running.wait(180);
    EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << signal << outcome.all();
    EXPECT_THAT(last_line(outcome.errors), AllOf(StartsWith("strata: stopped on request after step "),
                                                 HasSubstr("run the same command to resume")));
  }
}

// The launcher's command of launcher/kubernetes/mpijob.yaml, in the surroundings that the MPI operator makes: a pod
// that is not a worker itself, with the workers' host file in its environment.
TEST_F(ClusterLaunch, TheCommandOfTheMpiJob) {
  if (run({"python3", "-c", "import yaml"}).code != 0) GTEST_SKIP() << "python3-yaml is not installed";
  const Outcome words =
      run({"python3", "-c",
           "import yaml; pod = yaml.safe_load(open('" + source_dir().string() +
               "/launcher/kubernetes/mpijob.yaml'))['spec']['mpiReplicaSpecs']['Launcher']['template']['spec']"
               "; print(*pod['containers'][0]['args'], sep='\\n')"});
  ASSERT_EQ(words.code, 0) << words.all();
  run_.folder().write("recipe.toml",
                      "model = { preset = \"tiny-gpt2\", config = { n_layer = 2, n_embd = 32, n_head = 2, "
                      "vocab_size = 97, n_positions = 16 } }\n"
                      "data = { train = \"tokens.bin\", seq_len = 16 }\n"
                      "training = { max_steps = 20 }\n"
                      "device.threads = 1\nmemory = { device = \"256MiB\", host = \"256MiB\" }\n");
  run_.folder().write("hostfile", "n2 slots=2\nn3 slots=2\n");
  std::vector<std::string> command = {"env",
                                      "K_MPI_JOB_ROLE=launcher",
                                      "OMPI_MCA_orte_keep_fqdn_hostnames=true",
                                      "OMPI_MCA_orte_default_hostfile=" + file("hostfile"),
                                      "OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10",
                                      kStrata};
  std::istringstream lines(words.output);
  for (std::string word; std::getline(lines, word);) {
    if (word.starts_with("/runs/")) word = file(word.substr(6));
    command.push_back(word);
  }
  const Cluster cluster(3);
  const Outcome outcome = run(cluster.in("n1", command), 180);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr("4 ranks on n2 (2), n3 (2), of the MPIJob's hostfile"), HasSubstr("step 20/20")));
}

struct ClusterRefusal : ClusterRun {
  // These are refused before any rank starts, with exit code 2, one sentence and an event.
  void expect_refused(const Outcome& outcome, const testing::Matcher<std::string>& sentence) {
    EXPECT_EQ(outcome.code, static_cast<int>(Exit::usage)) << outcome.all();
    EXPECT_THAT(last_line(outcome.errors), AllOf(StartsWith("strata: "), sentence)) << outcome.all();
    EXPECT_THAT(outcome.errors, Not(HasSubstr("tokens/s")));
  }
};

TEST_F(ClusterRefusal, InvalidHostsInterfacesAndVariables) {
  const Cluster cluster(2);
  expect_refused(run(cluster.in("n1", launch({"--hosts", "n1,n7"})), 60), HasSubstr("n7 has no address"));
  run_.folder().write("hosts", "n1 slots=2\nn2 slot=2\n");
  expect_refused(run(cluster.in("n1", launch({"--hosts", file("hosts")})), 60), HasSubstr("hosts line 2: \"slot=2\""));
  expect_refused(run(cluster.in("n1", launch({"--hosts", "n1:1,n2:1", "--ranks-per-node", "2"})), 60),
                 AllOf(HasSubstr("--ranks-per-node 2"), HasSubstr("1 slot")));
  const Outcome interface = run(cluster.in("n1", launch({"--hosts", "n1,n2", "--interface", "ib0"})), 90);
  expect_refused(interface, HasSubstr("n1 has no interface ib0 with an address: it has eth0"));
  EXPECT_THAT(interface.errors, Not(HasSubstr("data.train"))) << "the recipe of a run that does not start";
  expect_refused(run(cluster.in("n1", launch({"--hosts", "n1,n2", "--env", "NO_SUCH_THING"})), 60),
                 HasSubstr("NO_SUCH_THING is not set"));
}

TEST_F(ClusterRefusal, SshThatPromptsOrRefuses) {
  const Cluster cluster(3);
  // n2 does not know our key, and n3 has no sshd.
  cluster.at("n2",
             "mount -t tmpfs tmpfs /mnt; : >/mnt/empty; "
             "f=$(sed -n 's/^AuthorizedKeysFile //p' \"$STRATA_CLUSTER/n2/sshd\"); mount --bind /mnt/empty $f");
  cluster.at("n3", "kill $(cat \"$STRATA_CLUSTER/n3/sshd.pid\")");
  const Outcome outcome = run(cluster.in("n1", launch({"--hosts", "n1,n2,n3"})), 90);
  expect_refused(outcome,
                 AllOf(HasSubstr("ssh to n2 asks for a password or refuses the key"), HasSubstr("ssh-copy-id n2"),
                       HasSubstr("n3 does not respond: "), HasSubstr("Connection refused"),
                       HasSubstr("(--min-nodes 1 would start on the 1 remaining node)")));
  EXPECT_THAT(events(), AllOf(HasSubstr(R"("event":"refused")"), HasSubstr(R"("exit":2)")));
}

// An open address is refused before any node is asked.
TEST_F(ClusterRefusal, AnOpenAddress) {
  const Cluster cluster(2);
  expect_refused(run(cluster.in("n1", launch({"--hosts", "n1,n2"}, {"control.listen=0.0.0.0:7000"})), 90),
                 HasSubstr("control.listen = \"0.0.0.0:7000\" lets other machines control this run"));
}

// launch detects this before it starts ranks. Without its check, the ranks detect it and name the node.
TEST_F(ClusterRefusal, FilesThatANodeCannotSee) {
  const Cluster cluster(2);
  expect_refused(run(cluster.in("n1", launch({"--hosts", "n1,n2"}, {"data.train=" + file("nowhere.bin")})), 90),
                 HasSubstr("strata: data.train: no file matches " + file("nowhere.bin")));
  const std::string recipe =
      run_.folder()
          .write("own/run.toml", "model.preset = \"tiny-gpt2\"\ndata.train = \"x\"\ntraining.max_steps = 1\n")
          .string();
  cluster.at("n2", "mount -t tmpfs tmpfs " + file("own"));
  std::string many = "data.train=[";
  for (int i = 0; i < 40; ++i) many += "\"" + run_.folder().write("seen.bin", "x").string() + "\", ";
  expect_refused(run(cluster.in("n1", launch({"--hosts", "n1,n2"}, {many + "\"" + recipe + "\"]"})), 90),
                 AllOf(HasSubstr("on n2, data.train: no file matches " + recipe), HasSubstr("other nodes see it")));
  EXPECT_THAT(
      run(cluster.in("n1", {"mpirun", "--allow-run-as-root", "--host", "n1,n2", kStrata, "train", recipe}), 120).errors,
      AllOf(HasSubstr("rank 1 on n2: recipe " + recipe + " does not exist here"), HasSubstr("all nodes share")));
}

// With --min-nodes, the remaining nodes are enough.
TEST_F(ClusterLaunch, StartsWithoutAnUnresponsiveNode) {
  const Cluster cluster(3);
  cluster.at("n3", "kill $(cat \"$STRATA_CLUSTER/n3/sshd.pid\")");
  const Outcome outcome =
      run(cluster.in("n1", launch({"--hosts", "n1,n2,n3", "--min-nodes", "2"}, {"training.max_steps=5"})), 180);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors,
              AllOf(HasSubstr("left out: n3 does not respond"), HasSubstr("2 ranks on n1 (1), n2 (1)")));
}

TEST_F(ClusterRefusal, ANodeWithADifferentOrMissingBinary) {
  const Cluster cluster(3);
  std::filesystem::create_directories(file("bin"));
  const std::string program = file("bin/strata");
  std::filesystem::copy_file(kStrata, program);
  // This is the same program with one more byte. It runs as well.
  std::filesystem::copy_file(kStrata, file("another"));
  std::ofstream(file("another"), std::ios::app) << "x";
  cluster.at("n2", "mount --bind " + file("another") + " " + program);
  cluster.at("n3", "mount -t tmpfs tmpfs " + file("bin"));
  expect_refused(run(cluster.in("n1", launch({"--hosts", "n1,n2"}, {}, program)), 90),
                 AllOf(HasSubstr("n2 has a different build of strata"), HasSubstr("install the same file there")));
  expect_refused(run(cluster.in("n1", launch({"--hosts", "n1,n3"}, {}, program)), 90),
                 AllOf(HasSubstr("n3 has no " + program), HasSubstr("install the same build")));
}

}  // namespace
}  // namespace strata::tests
