#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/launch/node/facts.h"
#include "launcher/launch/ranks/allocation.h"

namespace strata::launcher {

// Launch's agents, one per node (launcher/launch/node/agent.h): what a node is, whether it is there, and what it
// measures. They are kept for as long as the launch goes on, and end the ranks of nodes that are cut off.
class Agents {
 public:
  // run: the value of STRATA_LAUNCH of its ranks. timeout: seconds after which an agent that hears nothing ends its
  // node's ranks, and a node that says nothing is lost a little later; 0: never. meanwhile: is called while something
  // is waited for, and may throw to end that.
  Agents(const Allocation& allocation, std::string run, double timeout, std::vector<std::filesystem::path> folders,
         std::function<void()> meanwhile);
  ~Agents();

  // Starts those of these nodes that have none, all at once, and waits for their facts. Of nodes that have none then,
  // problems() has a sentence each that says why and what to do.
  void start(const std::vector<Host>& hosts, double seconds);
  // Ends the agent of a node that is left out.
  void drop(const std::string& host);

  bool answers(const std::string& host) const;
  const std::map<std::string, std::string>& problems() const { return problems_; }
  // Why a node does not answer: of problems(), or that its agent ended since.
  std::string problem(const std::string& host) const;
  const NodeFacts& facts(const std::string& host) const;
  // Seconds that the node's clock is ahead of this one's, as far as known.
  std::optional<double> clock_ahead(const std::string& host) const;

  // Whoever waits for something calls it again and again: an agent that hears nothing ends itself. Reads what agents
  // say for so long at most, and asks each for a sign of life about once per second.
  void attend(int milliseconds);
  // The same with pipes of the caller's, which read_lines() reads before.
  std::vector<LineReader*> readers();
  void ask_for_life();
  // Nodes that are lost since they were started: their agent ended, or nothing was heard of them.
  struct Lost {
    std::string host, why;
  };
  std::vector<Lost> lost() const;
  // Asks every node for a sign of life and waits until all came or the time is over. Returns those that gave none.
  std::vector<std::string> silent(double seconds);

  // Ends what is left of the run's ranks on these nodes. Returns those on which some are still there after so long:
  // they wait for a device.
  std::vector<std::string> end_ranks(const std::vector<std::string>& hosts, double seconds);

  // Sends each node its line and waits for the answers, JSON objects by node; those that did not come are left out.
  std::map<std::string, std::string> ask(const std::map<std::string, std::string>& lines, double seconds);

 private:
  struct Agent;
  void hear(Agent& agent, std::string_view line);
  Agent* find(const std::string& host) const;

  const Allocation& allocation_;
  std::string run_;
  double timeout_;
  std::vector<std::filesystem::path> folders_;
  std::function<void()> meanwhile_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::map<std::string, std::string> problems_;
  std::uint64_t asked_ = 0;
};

}  // namespace strata::launcher
