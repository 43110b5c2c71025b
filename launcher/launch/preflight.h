#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/launch/agents.h"
#include "launcher/launch/node/recipe_files.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// What was found of one node before anything starts there.
struct NodeCheck {
  std::string host;
  NodeFacts facts;
  std::optional<double> clock_ahead;  // seconds, of this machine's clock
  std::optional<double> gflop_per_s;
  std::optional<double> gbit_per_s, microseconds;  // of the better of its links
  std::vector<std::string> problems;               // of its measurements
  std::vector<std::string> unseen;                 // a sentence per file of the recipe that it does not see
};

// What is off, as a sentence that says what to do. `refuses`: nothing can start so.
struct Remark {
  std::string text;
  bool refuses;

  bool operator==(const Remark&) const = default;
};

// Seconds that a node has to see some files, for a second of products, to open a port, and for the figures of a link.
struct Patience {
  double files = 20, products = 30, port = 10, link = 20;
};

// Asks all nodes at once: whether they see the files, a second of products, then links in pairs, for two rounds with
// other partners. Nodes reach each other by the interface, or where their names lead.
std::vector<NodeCheck> look_at(Agents& agents, const std::vector<Host>& hosts, const runtime::Recipe& recipe,
                               const std::vector<RecipeFile>& files, const std::optional<std::string>& interface,
                               const Patience& patience = {});

// `program`: the hash of the launcher's own. A node below 0.8 of the median is a warning.
std::vector<Remark> judge(const std::vector<NodeCheck>& nodes, const runtime::Recipe& recipe, std::string_view program,
                          const std::optional<std::string>& interface);

// Of a node that is taken in again: why it cannot be; empty: it can. Asks it for the files, and measures nothing.
std::string why_unfit(Agents& agents, const Host& host, const runtime::Recipe& recipe,
                      const std::vector<RecipeFile>& files, const std::optional<std::string>& interface);

// A line per node, with the names of the columns above.
std::string table(const std::vector<NodeCheck>& nodes);

// The interface that the nodes' names lead to, if it has the same name on all.
std::optional<std::string> common_interface(const std::vector<NodeCheck>& nodes);

}  // namespace strata::launcher
