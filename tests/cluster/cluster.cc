#include "tests/cluster/cluster.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "tests/source_dir.h"

namespace strata::tests {
namespace {

bool is_there(const std::string& program) {
  for (const char* folder : {"/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/"})
    if (access((folder + program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

std::string Cluster::why_not(bool slurm) {
  if (geteuid() != 0) return "nodes are made of network namespaces, which takes root";
  std::vector<std::string> programs = {"ip", "nsenter", "unshare", "sshd", "ssh-keygen"};
  if (slurm) programs.insert(programs.end(), {"slurmctld", "slurmd", "munged", "srun", "sbatch"});
  for (const std::string& program : programs)
    if (!is_there(program)) return program + " is not installed (scripts/setup.sh --cluster)";
  const Outcome made =
      tests::run({"unshare", "--net", "--uts", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"}, 20);
  if (made.code != 0) return "this system makes no network and mount namespaces: " + made.errors;
  return {};
}

Cluster::Cluster(int nodes, bool slurm) : folder_("/run/strata-cluster-" + std::to_string(getpid())) {
  std::vector<std::string> up = {"up", std::to_string(nodes)};
  if (slurm) up.emplace_back("--slurm");
  const Outcome outcome = tests::run(words(up), 60);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
}

Cluster::~Cluster() {
  const Outcome outcome = tests::run(words({"down"}), 60);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
}

std::vector<std::string> Cluster::words(std::vector<std::string> command) const {
  const std::string script = source_dir() / "tests/cluster/cluster.sh";
  command.insert(command.begin(), {"env", "STRATA_CLUSTER=" + folder_, script});
  return command;
}

std::vector<std::string> Cluster::in(const std::string& node, const std::vector<std::string>& command) const {
  std::vector<std::string> all = words({"exec", node});
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

Outcome Cluster::at(const std::string& node, const std::string& shell_text) const {
  Outcome outcome = tests::run(in(node, {"sh", "-ec", shell_text}), 60);
  EXPECT_EQ(outcome.code, 0) << shell_text << "\n" << outcome.all();
  return outcome;
}

void Cluster::tell(const std::string& command, const std::string& node) const {
  const Outcome outcome = tests::run(words({command, node}), 60);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
}

void ClusterRun::signal_rank(const Cluster& cluster, const std::string& node, int rank,
                             const std::string& signal) const {
  // The text is built by the shell, because a plain pattern of pgrep would also match this shell.
  cluster.at(node,
             "for p in $(ip netns pids $(ip netns identify $$)); do tr '\\0' '\\n' </proc/$p/environ 2>/dev/null "
             "| grep -qE '^(OMPI_COMM_WORLD_RANK|PMIX_RANK)=" +
                 std::to_string(rank) + "$' || continue; tr '\\0' ' ' </proc/$p/cmdline | grep -q '^" + kStrata +
                 " train .*" + run_.folder().path().string() + "' && kill -" + signal + " $p && echo sent; done");
}

bool ClusterRun::has_control() {
  return tests::run({kStrata, "keys", "control.timeout"}, 20).code == 0;
}

std::vector<std::string> ClusterRun::train(const std::vector<std::string>& sets) const {
  // Nodes share the processors and the memory, but each believes that it has them to itself.
  std::vector<std::string> all = {"training.global_batch_size=12",
                                  "training.max_steps=400",
                                  "checkpoint.every=20",
                                  "zero.stage=3",
                                  "device.threads=1",
                                  "memory.device=256MiB",
                                  "memory.host=256MiB",
                                  "checkpoint.dir=" + file("checkpoints"),
                                  "report.summary=" + file("summary.json")};
  // Lost nodes are detected sooner than by default.
  if (has_control()) all.emplace_back("control.timeout=6");
  all.insert(all.end(), sets.begin(), sets.end());
  return run_.train(all);
}

std::vector<std::string> ClusterRun::launch(const std::vector<std::string>& options,
                                            const std::vector<std::string>& sets, const std::string& program) const {
  std::vector<std::string> all = {program, "launch", "--logs", file("logs")};
  all.insert(all.end(), options.begin(), options.end());
  all.emplace_back("--");
  const std::vector<std::string> command = train(sets);
  all.insert(all.end(), command.begin() + 1, command.end());
  return all;
}

std::vector<std::string> ClusterRun::mpirun(const std::vector<std::string>& sets) const {
  std::vector<std::string> all = {"mpirun", "--allow-run-as-root", "--bind-to", "none",
                                  "--host", "n1:2,n2:2,n3:2",      "-n",        "6"};
  for (const std::string& option : tagged_output()) all.push_back(option);
  for (std::string& word : train(sets)) all.push_back(std::move(word));
  return all;
}

int ClusterRun::ranks_left(const Cluster& cluster, const std::string& node) const {
  const std::string count =
      "ip netns pids $(ip netns identify $$) | xargs -r ps -o args= -p | grep -c '^" + kStrata + " train' || true";
  return std::stoi(
      cluster.at(node, "for i in $(seq 100); do n=$(" + count + "); [ $n -gt 0 ] || break; sleep 0.2; done; echo $n")
          .output);
}

std::string ClusterRun::untouched(const std::vector<std::string>& sets) const {
  std::vector<std::string> all = sets;
  all.insert(all.end(),
             {"checkpoint.every=0", "checkpoint.dir=" + file("untouched"), "report.summary=" + file("untouched.json")});
  const Outcome outcome = tests::run(train(all), 300);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  return weights_hash("untouched.json");
}

std::string ClusterRun::weights_hash(const std::string& summary) const {
  const std::string text = run_.folder().read(summary), key = "\"weights_hash\":\"";
  const std::size_t at = text.find(key);
  EXPECT_NE(at, std::string::npos) << summary << ": " << text;
  return at == std::string::npos ? "" : text.substr(at + key.size(), 32);
}

bool ClusterRun::is_at_step(const std::string& errors, int step) {
  return errors.find("step " + std::to_string(step) + "/") != std::string::npos;
}

std::string last_line(const std::string& text) {
  std::string_view all = text;
  while (!all.empty() && all.back() == '\n') all.remove_suffix(1);
  return std::string(all.substr(all.rfind('\n') + 1));
}

}  // namespace strata::tests
