#pragma once
#include <string>
#include <vector>

#include "tests/dist/launch.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {

// Nodes n1, n2, ..., which are network namespaces (cluster.sh). They exist during this object's lifetime.
class Cluster {
 public:
  // The reason why no cluster can be made here; empty if one can.
  static std::string why_not(bool slurm = false);

  explicit Cluster(int nodes, bool slurm = false);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // The command line that runs the command in a node.
  std::vector<std::string> in(const std::string& node, const std::vector<std::string>& command) const;
  // Runs a shell text in a node, waits for its end, and returns what it printed. Fails the test if it fails.
  Outcome at(const std::string& node, const std::string& shell_text) const;
  void kill(const std::string& node) const { tell("kill", node); }
  void cut(const std::string& node) const { tell("cut", node); }
  void join(const std::string& node) const { tell("join", node); }
  void revive(const std::string& node) const { tell("revive", node); }

 private:
  std::vector<std::string> words(std::vector<std::string> command) const;
  void tell(const std::string& command, const std::string& node) const;

  std::string folder_;
};

// A training on the nodes of a cluster: small, with checkpoints, and slow enough to be disturbed.
class ClusterRun : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = Cluster::why_not(); !why.empty()) GTEST_SKIP() << why;
  }

  // The command strata launch OPTIONS -- train, with the run's keys and the given ones.
  std::vector<std::string> launch(const std::vector<std::string>& options, const std::vector<std::string>& sets = {},
                                  const std::string& program = kStrata) const;
  std::vector<std::string> train(const std::vector<std::string>& sets = {}) const;
  // The command that runs it by mpirun, two ranks on each of n1, n2 and n3.
  std::vector<std::string> mpirun(const std::vector<std::string>& sets = {}) const;
  // The number of ranks that a node still has. Waits at most 20 seconds for them to end.
  int ranks_left(const Cluster& cluster, const std::string& node) const;
  // The weights' hash at the end of the same training on this machine, undisturbed.
  std::string untouched(const std::vector<std::string>& sets = {}) const;
  // The hash that the run itself reported.
  std::string weights_hash(const std::string& summary = "summary.json") const;
  std::string events() const { return run_.folder().read("logs/events.jsonl"); }
  std::string file(const std::string& name) const { return run_.file(name); }
  // Sends a signal to the process of a rank of this run, which is on that node.
  void signal_rank(const Cluster& cluster, const std::string& node, int rank, const std::string& signal) const;
  // Whether this build has the control service.
  static bool has_control();
  static bool is_at_step(const std::string& errors, int step);

  TinyRun run_;
};

// The last line of a text.
std::string last_line(const std::string& text);

}  // namespace strata::tests
