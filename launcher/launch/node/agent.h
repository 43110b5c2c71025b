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

// `strata node-agent`: launch runs it on every node for the whole run. Its first line is the node's facts. Then it
// answers each line of its standard input, "N WORD ...", by {"to":N, ...}:
//   ping | sees [[KEY,PATTERN],...] | products [cpu] | listen TOKEN | link ADDRESS PORT TOKEN | clear SECONDS | bye
// At its start it ends an older agent of the same run, which remained when this node was lost, and that agent's ranks:
// the older one might mistake the next ranks for its own. If it hears nothing for `timeout` seconds, or its input ends
// without bye, launch is gone or this node is cut off: it ends the run's ranks here, and then itself. Signals do not
// end it. Returns the exit code.
int node_agent(const AgentOptions& options);

// Ends the agents that the same launch started here earlier and has lost.
void end_older_agents(const std::string& run, const std::string& host);

// Ends the processes on this node that the run's launch started, which it finds by their environment, and waits at most
// that long until they are gone. Returns the IDs of those that remain: they wait for a device.
std::vector<int> end_ranks(const std::string& run, double seconds);

}  // namespace strata::launcher
