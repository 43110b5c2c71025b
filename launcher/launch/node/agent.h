// launcher/launch/node/ is what launch runs on every node: the agent (agent.h), which says what the node is (facts.h),
// measures products and links (facts.h, link.h), and ends the ranks of a node that is cut off.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace strata::launcher {

struct AgentOptions {
  std::string run;                             // whose ranks are looked after: their STRATA_LAUNCH
  std::string host;                            // by launch's name of it
  double timeout = 30;                         // seconds without a word from launch; 0: for ever
  std::vector<std::filesystem::path> folders;  // of memory.nvme
};

// `strata node-agent`: what launch runs on every node for as long as the run goes on. Its first line is the node's
// facts; then it answers the lines of its standard input, "N WORD ..." by {"to":N, ...}:
//   ping | sees [[KEY,PATTERN],...] | products [cpu] | listen TOKEN | link ADDRESS PORT TOKEN | clear SECONDS | bye
// An older agent of the same run, of before this node was lost, is ended first, with the ranks that it left: it might
// take those that are started next for its own. Without a word for `timeout` seconds, or when its input ends without
// bye, launch is gone or this node is cut off: it ends the run's ranks here, and itself. Signals do not end it. Returns
// the exit code.
int node_agent(const AgentOptions& options);

// Ends the agents that the same launch started here before, which knows nothing of them any more.
void end_older_agents(const std::string& run, const std::string& host);

// Ends the processes of this node that a run's launch has started, by what their environment says, and waits for so
// long at most until they are gone. Returns the numbers of those that are left: they wait for a device.
std::vector<int> end_ranks(const std::string& run, double seconds);

}  // namespace strata::launcher
