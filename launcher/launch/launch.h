#pragma once
// launcher/launch/ starts the ranks of a run on one or many nodes with mpirun or srun, and restarts them on the
// remaining nodes when they fail. It is not a scheduler: nodes come from Slurm, an MPIJob or --hosts. Read next:
// launch.cc for the whole sequence, preflight.cc for the checks before a start, attempt.h for one start, restart.cc for
// restarts, node/agent.h for the process on every node.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "device/device.h"
#include "launcher/launch/agents.h"
#include "launcher/launch/node/facts.h"
#include "launcher/launch/ranks/allocation.h"
#include "launcher/launch/ranks/attempt.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

struct LaunchOptions {
  std::optional<std::string> hosts;
  std::optional<int> ranks_per_node, max_restarts, min_nodes;
  std::optional<std::filesystem::path> logs;
  std::vector<std::string> env;
  std::optional<std::string> interface;
  bool preflight = true;
  std::vector<std::string> command;  // the words after `--`
};

// Returns the exit code of the last run; throws Error.
int launch(const LaunchOptions& options);

// The facts about one node before anything starts there.
struct NodeCheck {
  std::string host;
  NodeFacts facts;
  std::optional<double> clock_ahead;  // seconds by which it is ahead of this machine's clock
  std::optional<double> gflop_per_s;
  std::optional<double> gbit_per_s, microseconds;  // figures of the better of its links
  std::vector<std::string> problems;               // problems that its measurements found
  std::vector<std::string> unseen;                 // one sentence for each file of the recipe that it does not see
};

// A sentence that says what is wrong and what to do. `refuses`: the run cannot start until it is fixed.
struct PreflightFinding {
  std::string text;
  bool refuses;

  bool operator==(const PreflightFinding&) const = default;
};

// The seconds that a node has for each question: to look for files, to compute products for a second, to open a port,
// and to measure a link.
struct PreflightTimeouts {
  double files = 20, products = 30, port = 10, link = 20;
};

// Asks all nodes at the same time whether they see the files and how fast they compute, then measures links between
// pairs of nodes, in two rounds with different partners. Nodes reach each other through the interface, or at the
// addresses of their names.
std::vector<NodeCheck> look_at(Agents& agents, const std::vector<Host>& hosts, const runtime::Recipe& recipe,
                               const std::vector<RecipeFile>& files, const std::optional<std::string>& interface,
                               const PreflightTimeouts& timeouts = {});

// Lists the problems of the nodes. `program`: the hash of the launcher's own program. A node below 0.8 of the median
// gets a warning.
std::vector<PreflightFinding> find_problems(const std::vector<NodeCheck>& nodes, const runtime::Recipe& recipe,
                                            std::string_view program, const std::optional<std::string>& interface);

// Why a node cannot be used again in the run; empty if it can. Asks it for the files, and measures nothing. `others`:
// the nodes in use; `host` must not be another name for one of them.
std::string why_unfit(Agents& agents, const Host& host, const runtime::Recipe& recipe,
                      const std::vector<RecipeFile>& files, const std::optional<std::string>& interface,
                      const std::set<std::string>& others);

// A table with column names and one line per node.
std::string table(const std::vector<NodeCheck>& nodes);

// The interface to which the nodes' names resolve, if it has the same name on all nodes.
std::optional<std::string> common_interface(const std::vector<NodeCheck>& nodes);

// Why a run that ended like this is not restarted; empty if it is restarted. `before`: how the previous start ended.
std::string why_final(const Outcome& ended, const std::optional<Outcome>& before);

// Seconds to wait before restart `number`, counted from 1; longer each time.
double restart_wait(int number);

// The number of sequences in a step of `ranks` ranks, and the keys that keep this number with another number of ranks:
// accumulation if the recipe sets it, otherwise the batch.
std::int64_t global_batch(const runtime::Recipe& recipe, int ranks);
std::vector<std::string> batch_sets(const runtime::Recipe& recipe, std::int64_t batch, int ranks);

// The checkpoints in a folder, with the times at which they were written.
using Checkpoints = std::set<std::pair<std::filesystem::path, std::filesystem::file_time_type>>;
Checkpoints checkpoints_in(const std::optional<std::filesystem::path>& folder);
// The keys with which a restart resumes from what this launch has written since `before`, whatever checkpoint.resume
// was at the first start.
std::vector<std::string> resume_sets(const runtime::Recipe& recipe, const Checkpoints& before);

// The keys, as KEY=VALUE, that replace control.listen and control.metrics if their address belongs to a single node
// (HOST:PORT, neither loopback nor "any address"), because rank 0 may have moved to another node.
std::vector<std::string> control_sets(const runtime::Recipe& recipe);

// The ranks of as many complete replicas as possible, if these nodes have slots for them, they divide `batch` together
// with the recipe's micro-batch, and their plan fits according to `fits`. Empty if there are none. The ranks of a
// tensor group share a node if it has enough slots.
std::vector<Share> max_ranks(const std::vector<Host>& hosts, int default_slots, const runtime::Recipe& recipe,
                             std::int64_t batch, const std::function<bool(const std::vector<Share>&)>& fits);
// Why max_ranks() found no ranks, in words that follow "launch ends: ".
std::string why_no_ranks(const std::vector<Host>& hosts, int default_slots, const runtime::Recipe& recipe,
                         std::int64_t batch);
// A sentence about the slots that `shares` leaves unused; empty if there are none.
std::string idle_text(const std::vector<Host>& hosts, int default_slots, const std::vector<Share>& shares,
                      const runtime::Recipe& recipe, std::int64_t batch);

// How launch ends if it is asked this many times to stop while no rank runs. As for ranks that were stopped, the exit
// code says whether there is a checkpoint to resume from. `kept`: there is a checkpoint. `started`: ranks ran before.
// `resume`: checkpoint.resume as the user set it.
struct BetweenStarts {
  Exit code;
  std::string text;
};
BetweenStarts stopped_between_starts(bool kept, bool started, int times, std::string_view resume = "auto");

// `train RECIPE --set ... --force`: the command after `--` on launch's command line.
struct TrainCommand {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  bool force = false;

  // The words of the command, with `more` keys set after those of the user.
  std::vector<std::string> words(std::span<const std::string> more = {}) const;
  runtime::Recipe load() const;
};

// Throws Error{usage} if the words are another command or are wrong.
TrainCommand read_train_command(std::span<const std::string> words);

// Replaces training.micro_batch_size = auto by a number for this many ranks on devices of that kind, as a key of the
// command, and returns the recipe that the command then has. unseen: called for files that are not on this machine.
// Changes nothing if the recipe gives a number.
runtime::Recipe resolve_micro_batch(TrainCommand& command, const runtime::Recipe& recipe, int ranks, device::Kind kind,
                                    const Note& unseen);

// All files that the command and its recipe name: model, tokens, prompts, a checkpoint to start from, files of the
// control service. This excludes memory.nvme, which is checked separately, and checkpoint.dir, which a run creates.
std::vector<RecipeFile> recipe_files(const TrainCommand& command, const runtime::Recipe& recipe);

// The lines of to_text() that differ from the defaults.
std::string changed_keys(const runtime::Recipe& recipe);

}  // namespace strata::launcher
