#pragma once
#include <gmock/gmock.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/dist/tiny_run.h"

namespace strata::tests {

// strata launch of a tiny run on this machine only.
class LaunchAlone : public testing::Test {
 protected:
  std::vector<std::string> launch(const std::vector<std::string>& options,
                                  const std::vector<std::string>& sets = {}) const {
    std::vector<std::string> all = {kStrata, "launch", "--logs", run_.file("logs")};
    all.insert(all.end(), options.begin(), options.end());
    all.emplace_back("--");
    std::vector<std::string> more = {"device.threads=1", "training.global_batch_size=4"};
    more.insert(more.end(), sets.begin(), sets.end());
    const std::vector<std::string> command = run_.train(more);
    all.insert(all.end(), command.begin() + 1, command.end());
    return all;
  }
  std::string checkpoints() const { return "checkpoint.dir=" + run_.file("checkpoints"); }
  std::string log(const std::string& name) const { return run_.folder().read("logs/" + name); }
  static std::string last_line(const Outcome& outcome) {
    std::string text = outcome.errors;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }
  static auto steps(int starts) {
    return [starts](const std::string&, const std::string& errors) {
      int found = 0;
      std::size_t newest = 0;
      for (std::size_t at = 0; (at = errors.find(" parameters, ", at)) != std::string::npos; ++at) ++found, newest = at;
      return found == starts && errors.find("tokens/s", newest) != std::string::npos;
    };
  }
  // Sends a signal to the process of a rank of this run.
  void signal_rank(int rank, const std::string& signal) const {
    const std::string text = "for p in $(pgrep -f '" + run_.folder().path().string() +
                             "'); do if grep -qz '^OMPI_COMM_WORLD_RANK=" + std::to_string(rank) +
                             "$' /proc/$p/environ; then kill -" + signal + " $p && echo sent; fi; done";
    EXPECT_THAT(run({"bash", "-c", text}).output, testing::HasSubstr("sent"));
  }
  // Kills the agent of the launch whose command line contains this run's folder.
  void kill_agent() const {
    const std::string text =
        "for p in $(pgrep -f '^" + kStrata + " node-agent'); do parent=$(ps -o ppid= -p $p); if grep -qa '" +
        run_.folder().path().string() + "' /proc/${parent// /}/cmdline; then kill -KILL $p && echo sent; fi; done";
    EXPECT_THAT(run({"bash", "-c", text}).output, testing::HasSubstr("sent"));
  }

  TinyRun run_;
};

}  // namespace strata::tests
