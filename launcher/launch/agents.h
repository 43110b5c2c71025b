#pragma once
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

// Launch's agents, one per node (launcher/launch/node/agent.h). They report a node's facts, heartbeats and
// measurements, and end the ranks of a node that is cut off. They run for the whole launch.
class Agents {
 public:
  // run: the value of STRATA_LAUNCH in the ranks. timeout: an agent that hears nothing for this many seconds ends its
  // node's ranks, and a node that is silent for slightly longer counts as lost; 0: never. meanwhile: called during
  // every wait; it may throw to end the wait.
  Agents(const Allocation& allocation, std::string run, double timeout, std::vector<std::filesystem::path> folders,
         std::function<void()> meanwhile);
  ~Agents();

  // Starts an agent on each of these nodes that has none, all at the same time, and waits for their facts. For each
  // node that still has no agent after that, problems() contains a sentence that says why and what to do.
  void start(const std::vector<Host>& hosts, double seconds);
  // Ends the agent of a node that is no longer used.
  void drop(const std::string& host);

  bool answers(const std::string& host) const;
  const std::map<std::string, std::string>& problems() const { return problems_; }
  // Why a node does not respond: its entry in problems(), or that its agent has ended.
  std::string problem(const std::string& host) const;
  const NodeFacts& facts(const std::string& host) const;
  // The number of seconds by which the node's clock is ahead of this one, if known.
  std::optional<double> clock_ahead(const std::string& host) const;

  // Reads the agents' lines for at most this many milliseconds, and sends each a heartbeat request about once per
  // second. Every wait must keep calling it, because an agent that receives nothing ends itself.
  void attend(int milliseconds);
  // attend() in two parts, for callers that have their own pipes: read readers() with read_lines(), then call ping().
  std::vector<LineReader*> readers();
  void ping();
  // Nodes that were lost after they were started: the agent ended, or the node fell silent.
  struct Lost {
    std::string host, why;
  };
  std::vector<Lost> lost() const;
  // Sends every node a heartbeat request and waits until all have answered or the time is up. Returns the nodes that
  // did not answer.
  std::vector<std::string> silent(double seconds);

  // Ends the run's remaining ranks on these nodes. Returns the nodes that still have ranks when the time is up, because
  // these wait for a device.
  std::vector<std::string> end_ranks(const std::vector<std::string>& hosts, double seconds);

  // Sends each node its line and waits for the answers. Returns JSON objects by node, without nodes that do not answer.
  std::map<std::string, std::string> ask(const std::map<std::string, std::string>& lines, double seconds);

 private:
  struct Agent;
  void handle_line(Agent& agent, std::string_view line);
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
