// launcher/launch/node/ is what launch runs on every node: the agent (agent.h). It says what the node is (facts.h),
// measures products and links (facts.h, link.h), and ends the ranks of a node that is cut off.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace strata::launcher {

struct AgentOptions {
  std::string run;                             // the STRATA_LAUNCH of the ranks it looks after
  std::string host;                            // launch's name of the node
  double timeout = 30;                         // seconds without a word from launch; 0: for ever
  std::vector<std::filesystem::path> folders;  // those of memory.nvme
};

// `strata node-agent`: what launch runs on every node for as long as the run goes on. Its first line is the node's
// facts. Then it answers each line of its standard input, "N WORD ...", by {"to":N, ...}:
//   ping | sees [[KEY,PATTERN],...] | products [cpu] | listen TOKEN | link ADDRESS PORT TOKEN | clear SECONDS | bye
// At its start it ends an older agent of the same run, left from before this node was lost, together with its ranks:
// that agent might take the next ranks for its own. If it hears nothing for `timeout` seconds, or its input ends
// without bye, launch is gone or this node is cut off: it ends the run's ranks here, and then itself. Signals do not
// end it. Returns the exit code.
int node_agent(const AgentOptions& options);

// Ends the agents that the same launch started here earlier and has lost.
void end_older_agents(const std::string& run, const std::string& host);

// Ends the processes on this node that the run's launch started, found by their environment, and waits for at most so
// long until they are gone. Returns the numbers of those that are left: they wait for a device.
std::vector<int> end_ranks(const std::string& run, double seconds);

}  // namespace strata::launcher
