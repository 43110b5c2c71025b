#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/launch/agents.h"
#include "launcher/launch/node/recipe_files.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// The findings about one node before anything starts there.
struct NodeCheck {
  std::string host;
  NodeFacts facts;
  std::optional<double> clock_ahead;  // seconds ahead of this machine's clock
  std::optional<double> gflop_per_s;
  std::optional<double> gbit_per_s, microseconds;  // its better link's
  std::vector<std::string> problems;               // what its measurements found
  std::vector<std::string> unseen;                 // one sentence per file of the recipe that it does not see
};

// A sentence that says what is wrong and what to do. `refuses`: nothing can start until it is fixed.
struct Remark {
  std::string text;
  bool refuses;

  bool operator==(const Remark&) const = default;
};

// Seconds that a node has for each question: to see files, to compute products for a second, to open a port, to measure
// a link.
struct Patience {
  double files = 20, products = 30, port = 10, link = 20;
};

// Asks all nodes at once whether they see the files and how fast they compute, then measures links between pairs, in
// two rounds with different partners. Nodes reach each other by the interface, or by the addresses of their names.
std::vector<NodeCheck> look_at(Agents& agents, const std::vector<Host>& hosts, const runtime::Recipe& recipe,
                               const std::vector<RecipeFile>& files, const std::optional<std::string>& interface,
                               const Patience& patience = {});

// Judges the findings. `program`: the hash of the launcher's own program. A node below 0.8 of the median gets a
// warning.
std::vector<Remark> judge(const std::vector<NodeCheck>& nodes, const runtime::Recipe& recipe, std::string_view program,
                          const std::optional<std::string>& interface);

// Why a node cannot be taken back into the run; empty if it can. Asks it for the files, and measures nothing.
std::string why_unfit(Agents& agents, const Host& host, const runtime::Recipe& recipe,
                      const std::vector<RecipeFile>& files, const std::optional<std::string>& interface);

// A table with one line per node below the names of the columns.
std::string table(const std::vector<NodeCheck>& nodes);

// The interface that the nodes' names lead to, if it has the same name on all nodes.
std::optional<std::string> common_interface(const std::vector<NodeCheck>& nodes);

}  // namespace strata::launcher
