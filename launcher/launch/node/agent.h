#pragma once
// launcher/launch/node/ has the process that launch runs on every node: the agent (here). It reports the node's
// properties (facts.h), measures products (facts.h) and links (link.cc), and ends the ranks of a node that is cut off.

#include <filesystem>
#include <string>
#include <vector>

#include "base/files/descriptor.h"
#include "base/json/json_writer.h"

namespace strata::launcher {

struct AgentOptions {
  std::string run;                             // the value of STRATA_LAUNCH in its ranks
  std::string host;                            // the name by which launch knows the node
  double timeout = 30;                         // seconds without a line from launch after which it ends; 0: never
  std::vector<std::filesystem::path> folders;  // from memory.nvme
};

// `strata node-agent`: launch runs it on every node for the whole run. Its first line is the node's facts. Then it
// answers each line of its standard input, "N WORD ...", with {"to":N, ...}:
//   ping | sees [[KEY,PATTERN],...] | products [cpu] | listen TOKEN | link ADDRESS PORT TOKEN | clear SECONDS | bye
// When it starts, it ends an older agent of the same run, which remained when this node was lost, together with its
// ranks. Otherwise the older agent might mistake the next ranks for its own. If it receives nothing for `timeout`
// seconds, or its input ends without bye, launch has ended or this node is cut off. It then ends the run's ranks here,
// and itself. Signals do not end it. Returns the exit code.
int node_agent(const AgentOptions& options);

// Ends agents that the same launch started here earlier and lost contact with.
void end_older_agents(const std::string& run, const std::string& host);

// Ends the processes on this node that the run's launch started, which it recognises by their environment, and waits
// for at most `seconds` until they are gone. Returns the IDs of those that remain because they wait for a device.
std::vector<int> end_ranks(const std::string& run, double seconds);

// The speed of one TCP connection between two nodes.
struct LinkSpeed {
  double gbit_per_s = 0;    // of the slower direction
  double microseconds = 0;  // median round trip
};
// The figures as the members "gbit_per_s" and "microseconds".
JsonObject json_of(const LinkSpeed& speed);

// The listening end of one measurement. It serves the first connection that begins with the token and refuses all
// others, so that other processes cannot use the port during the few seconds in which it is open.
class LinkListener {
 public:
  // Throws Error{failed} if no port can be opened.
  explicit LinkListener(std::string token);
  int port() const { return port_; }
  // Returns after one measurement, or after this many seconds.
  void serve_one(double seconds);

 private:
  std::string token_;
  Descriptor socket_;
  int port_ = 0;
};

// The connecting end. Throws Error{failed} with the address and the system's reason.
LinkSpeed measure_link(const std::string& address, int port, const std::string& token);

}  // namespace strata::launcher
