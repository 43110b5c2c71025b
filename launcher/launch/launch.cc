#include "launcher/launch/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/host/host.h"
#include "base/quantity.h"
#include "base/random_name.h"
#include "launcher/control/service/endpoints.h"
#include "launcher/launch/agents.h"
#include "launcher/launch/log_file.h"
#include "launcher/launch/ranks/allocation.h"
#include "launcher/launch/ranks/attempt.h"
#include "launcher/launch/ranks/rank_program.h"
#include "launcher/outputs.h"
#include "launcher/screen/printable.h"
#include "runtime/checkpoint/export/model_folder.h"

namespace strata::launcher {
namespace {

using runtime::Recipe;

constexpr double kAnswerSeconds = 30;       // for a node to start and send its facts
constexpr double kAnswerAgainSeconds = 15;  // the same after a failure: ssh gives up after 10
constexpr double kForScreen = 60;           // for a blocked screen at the end, at most
constexpr int kRestarts = 3;                // for a run that writes checkpoints

// Each node needs three pipes and a process.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<std::string> names(const std::vector<Share>& shares) {
  std::vector<std::string> out;
  out.reserve(shares.size());
  for (const Share& share : shares) out.push_back(share.host);
  return out;
}

class Launch {
 public:
  Launch(const LaunchOptions& options, Events& events)
      : options_(options),
        events_(events),
        command_(read_train_command(options.command)),
        recipe_(command_.load()),
        variables_(forwarded_names(options.env)),
        allocation_(find_allocation(options.hosts)),
        run_(random_name()),
        agents_(allocation_, run_, recipe_.control.timeout, recipe_.memory.nvme, [this] { look_for_stop(); }) {}

  int run() {
    int code = 0;
    try {
      code = start_and_restart();
    } catch (const StoppedBetween&) {
      code = stopped_between();
    }
    // If the terminal accepts no output, its user may have paused it. Another stop request ends this wait.
    const int asked = stop_.count();
    const auto end = SteadyClock::now();
    while (!screen_.drain(0.1) && stop_.count() == asked && seconds_since(end) < kForScreen) {
    }
    return code;
  }

  // Whether the screen has still not accepted all output.
  bool screen_hangs() { return !screen_.drain(0); }

 private:
  struct StoppedBetween {};
  // Throws if a stop was requested while there are no ranks to end first.
  void look_for_stop() const {
    if (!ranks_run_ && stop_.count() > 0) throw StoppedBetween();
  }

  int start_and_restart() {
    control::require_guarded(recipe_.control);
    if (options_.logs) {
      require_outside_checkpoints({{"--logs", *options_.logs}}, recipe_);
      std::vector<NamedFile> outputs = reports_of(recipe_);
      outputs.push_back({"--logs", *options_.logs / kEventsFile});
      require_apart(outputs, {});
    }
    std::vector<Share> shares = first_shares();
    resolve_batch(total(shares));
    const std::int64_t batch = global_batch(recipe_, total(shares));
    announce(shares);
    look_first(shares);
    show_recipe();
    found_ = checkpoints_in(recipe_.checkpoint.dir);
    const std::string first_node = shares[0].host;
    for (int restarts = 0;; ++restarts) {
      look_for_stop();
      events_.write({"start", names(shares), total(shares)});
      std::vector<std::string> sets;
      if (interface_ && (options_.interface || recipe_.control.interface.empty()))
        sets.push_back("control.interface=" + *interface_);
      if (shares[0].host != first_node) {
        for (const std::string& one : control_sets(recipe_)) {
          screen_.say("{}: its address belongs to {}, but rank 0 is now on {}", one, first_node, shares[0].host);
          sets.push_back(one);
        }
      }
      if (restarts > 0) {
        for (const auto& more : {batch_sets(recipe_, batch, total(shares)), resume_sets(recipe_, found_)})
          sets.insert(sets.end(), more.begin(), more.end());
      }
      ranks_run_ = true;
      const Outcome ended =
          run_ranks(allocation_,
                    {shares, command_.words(sets), variables_, run_, interface_, options_.interface.has_value(),
                     restarts > 0, recipe_.checkpoint.resume, mesh_of(shares)},
                    agents_, stop_, screen_, options_.logs);
      events_.write({"end", names(shares), total(shares), ended.code, ended.cause});
      if (!ended.lost.empty()) events_.write({"node_lost", ended.lost, {}, {}, ended.cause});
      if (!ended.held.empty()) events_.write({"node_held", ended.held, {}, {}, "a rank there cannot be ended"});
      if (ended.code == static_cast<int>(Exit::done)) return ended.code;
      if (const std::string why = why_not_again(ended, ended_, restarts); !why.empty()) {
        if (!ended.printed || restarts > 0)
          screen_.note(fmt::format("launch ends with exit code {} ({}): {}", ended.code, why, ended.cause),
                       ended.code == static_cast<int>(Exit::does_not_fit));
        return ended.code;
      }
      if (!ended.printed && stop_.count() < 2) screen_.note(ended.cause);
      ended_ = ended;
      ranks_run_ = false;
      look_for_stop();
      shares = left_over(ended, batch);
      if (shares.empty()) return ended.code;
      const double seconds = restart_wait(restarts + 1);
      screen_.say("starts again in {:.0f} s, restart {} of {}: {} on {}", seconds, restarts + 1, max_restarts(),
                  counted(total(shares), "rank"), describe(shares));
      events_.write({"restart", names(shares), total(shares), {}, ended.cause});
      wait(seconds);
    }
  }

  runtime::Mesh mesh_of(const std::vector<Share>& shares) const {
    return {total(shares), {}, 0, recipe_.parallel.tensor, recipe_.parallel.stages};
  }

  int max_restarts() const { return options_.max_restarts.value_or(recipe_.checkpoint.dir ? kRestarts : 0); }

  // Counts a node's slots by its own GPUs, because nodes may differ.
  void count_slots() {
    for (Host& host : allocation_.hosts) {
      if (!agents_.answers(host.name)) continue;
      const bool on_cpu = recipe_.device.kind == runtime::DeviceKind::cpu;
      host.slots = ranks_on(host, on_cpu ? 0 : agents_.facts(host.name).gpus.size());
      host.processors = false;
    }
  }

  std::vector<Share> first_shares() {
    if (options_.ranks_per_node)
      for (Host& host : allocation_.hosts) {
        if (host.slots && *host.slots < *options_.ranks_per_node)
          fail(Exit::usage, "--ranks-per-node {} is more than {} has room for: {} gives it {}",
               *options_.ranks_per_node, host.name, allocation_.origin, counted(*host.slots, "slot"));
        host.slots = options_.ranks_per_node;
        host.processors = false;
      }
    if (options_.min_nodes && static_cast<std::size_t>(*options_.min_nodes) > allocation_.hosts.size())
      fail(Exit::usage, "--min-nodes is {}, but {} has only {}", *options_.min_nodes, allocation_.origin,
           counted(allocation_.hosts.size(), "node"));
    agents_.start(allocation_.hosts, kAnswerSeconds);
    if (!agents_.problems().empty()) leave_out_or_refuse();
    count_slots();
    int ranks = 0;
    for (const Host& host : allocation_.hosts) ranks += *host.slots;
    if (allocation_.ranks && ranks != *allocation_.ranks)
      fail(Exit::usage,
           "{} was requested with {}, but --ranks-per-node {} makes {}: leave it out, or request as many "
           "(sbatch --ntasks-per-node={})",
           allocation_.origin, counted(*allocation_.ranks, "rank"), options_.ranks_per_node.value_or(1), ranks,
           options_.ranks_per_node.value_or(1));
    return distribute_ranks(allocation_.hosts, ranks, 1);
  }

  // Resolves the batch once, for all starts and any number of ranks.
  void resolve_batch(int ranks) {
    const auto has_gpus = [&](const Host& host) { return !agents_.facts(host.name).gpus.empty(); };
    const bool on_gpus = recipe_.device.kind == runtime::DeviceKind::cuda ||
                         (recipe_.device.kind == runtime::DeviceKind::automatic &&
                          std::all_of(allocation_.hosts.begin(), allocation_.hosts.end(), has_gpus));
    recipe_ = resolve_micro_batch(command_, recipe_, ranks, on_gpus ? device::Kind::cuda : device::Kind::cpu,
                                  [this](const std::string& unseen) { screen_.note(unseen); });
  }

  // At the first start, every named node is required unless --min-nodes says otherwise.
  void leave_out_or_refuse() {
    std::vector<std::string> why;
    for (const auto& [host, problem] : agents_.problems()) why.push_back(problem);
    const std::size_t left = allocation_.hosts.size() - why.size();
    if (!options_.min_nodes || left < static_cast<std::size_t>(*options_.min_nodes) || left == 0)
      fail(Exit::usage, "{}{}", fmt::join(why, "; "),
           left == 0 || options_.min_nodes
               ? ""
               : fmt::format(" (--min-nodes {} would start on the {})", left, counted(left, "remaining node")));
    for (const std::string& one : why) screen_.say("left out: {}", one);
    const auto absent =
        std::stable_partition(allocation_.hosts.begin(), allocation_.hosts.end(),
                              [&](const Host& host) { return !agents_.problems().contains(host.name); });
    absent_.assign(absent, allocation_.hosts.end());
    allocation_.hosts.erase(absent, allocation_.hosts.end());
    allocation_.ranks.reset();
  }

  void announce(const std::vector<Share>& shares) {
    screen_.say("{} on {}, of {}, started by {}{}", counted(total(shares), "rank"), describe(shares),
                allocation_.origin, program_of(allocation_.starter),
                allocation_.why_not_srun.empty() ? "" : ", as " + allocation_.why_not_srun);
  }

  // Shown only when nothing can be refused any more, so that a refusal is the only output.
  void show_recipe() {
    screen_.write(true, "strata: the recipe, without keys at their defaults:\n");
    std::istringstream lines(printable(changed_keys(recipe_), true));
    for (std::string line; std::getline(lines, line);) screen_.write(true, "  " + line + "\n");
    if (max_restarts() > 0 && !recipe_.checkpoint.dir)
      screen_.note("nothing will be saved, so a restart begins at step 1: set checkpoint.dir to keep what was trained");
    if (max_restarts() > 0 && allocation_.hosts.size() > 1)
      for (const std::string& one : control_sets(recipe_))
        screen_.say(
            "if rank 0 has to move to another node, the run continues with {}, because the recipe's address belongs to "
            "one node: give 0.0.0.0:PORT instead, which every node has",
            one);
  }

  // Also chooses the interface: that of --interface, or the interface to which the nodes' names resolve.
  void look_first(const std::vector<Share>& shares) {
    std::vector<Host> hosts;
    hosts.reserve(shares.size());
    for (const Share& share : shares) hosts.push_back({share.host, share.ranks});
    interface_ = options_.interface;
    std::vector<NodeCheck> nodes;
    if (options_.preflight) {
      nodes = look_at(agents_, hosts, recipe_, recipe_files(command_, recipe_), interface_);
      if (nodes.size() > 1) screen_.write(true, printable(table(nodes), true));
      refuse_or_warn(find_problems(nodes, recipe_, program_hash(), interface_));
    } else {
      for (const Host& host : hosts) nodes.push_back({host.name, agents_.facts(host.name), {}, {}, {}, {}, {}, {}});
    }
    if (!interface_ && nodes.size() > 1) interface_ = common_interface(nodes);
    if (interface_) say_interface();
  }
  // Keeps variables that the user or the recipe has set, unless --interface sets all three.
  void say_interface() {
    if (options_.interface) return screen_.say("MPI, NCCL and control use {}, as --interface says", *interface_);
    std::vector<std::string> others = interface_variables();
    if (!recipe_.control.interface.empty()) others.push_back("control.interface=" + recipe_.control.interface);
    screen_.say("MPI, NCCL and control use {}, to which the nodes' names resolve{}", *interface_,
                others.empty() ? "" : fmt::format(", except as set by {}", fmt::join(others, ", ")));
  }
  void refuse_or_warn(const std::vector<PreflightFinding>& findings) {
    std::vector<std::string> refused;
    for (const PreflightFinding& finding : findings)
      if (finding.refuses)
        refused.push_back(finding.text);
      else
        screen_.note(finding.text);
    if (refused.empty()) return;
    fail(Exit::usage, "{}", fmt::join(refused, "; "));
  }

  std::string why_not_again(const Outcome& ended, const std::optional<Outcome>& before, int restarts) const {
    if (std::string why = why_final(ended, before); !why.empty()) return why;
    if (restarts < max_restarts() || stop_.count() > 0) return {};
    return max_restarts() == 0 ? "--max-restarts is 0" : fmt::format("--max-restarts {} is used up", max_restarts());
  }

  // The ranks with which to continue. If there are none, the reason has been printed and the result is empty.
  std::vector<Share> left_over(const Outcome& ended, std::int64_t batch) {
    for (const std::string& host : ended.lost) agents_.drop(host);  // ask again later, because the node may be back
    std::set<std::string> known;
    for (const Host& host : allocation_.hosts)
      if (agents_.answers(host.name)) known.insert(host.name);
    allocation_.hosts.insert(allocation_.hosts.end(), absent_.begin(), absent_.end());
    absent_.clear();
    agents_.start(allocation_.hosts, kAnswerAgainSeconds);
    count_slots();
    const std::vector<RecipeFile> files = recipe_files(command_, recipe_);
    std::vector<Host> hosts;
    for (const Host& host : allocation_.hosts)
      if (std::find(ended.held.begin(), ended.held.end(), host.name) != ended.held.end())
        screen_.say(
            "left out: a rank on {} cannot be ended, because it waits for a device, such as a drive of memory.nvme, "
            "that does not answer: see the kernel's log there (dmesg)",
            host.name);
      else if (!agents_.answers(host.name))
        screen_.say("left out: {}", agents_.problem(host.name));
      else if (const std::string why = known.contains(host.name)
                                           ? ""
                                           : why_unfit(agents_, host, recipe_, files, interface_,
                                                       options_.preflight ? known : std::set<std::string>());
               !why.empty())
        screen_.say("left out: {}", why);
      else {
        hosts.push_back(host);
        known.insert(host.name);
      }
    const int least = std::max(1, options_.min_nodes.value_or(1));
    if (static_cast<int>(hosts.size()) < least) {
      screen_.say("launch ends with exit code {}: {} of {} {}{}", ended.code, hosts.size(),
                  counted(allocation_.hosts.size(), "node"), for_count(hosts.size(), "remains", "remain"),
                  options_.min_nodes ? fmt::format(", but --min-nodes is {}", least) : "");
      return {};
    }
    std::vector<Share> shares =
        max_ranks(hosts, 1, recipe_, batch, [&](const auto& some) { return plan_fits(some, batch); });
    if (shares.empty())
      screen_.say("launch ends with exit code {}: {}", ended.code, why_no_ranks(hosts, 1, recipe_, batch));
    else if (const std::string idle = idle_text(hosts, 1, shares, recipe_, batch); !idle.empty())
      screen_.note(idle);
    return shares;
  }

  // Whether `plan` accepts these ranks, which may not divide into groups. It runs on a node, because its memory counts.
  bool plan_fits(const std::vector<Share>& shares, std::int64_t batch) {
    std::vector<std::string> words = command_.words(batch_sets(recipe_, batch, total(shares)));
    words[0] = "plan";
    std::erase(words, "--force");
    words.insert(words.begin(), own_program().string());
    words.insert(words.end(),
                 {"--ranks", std::to_string(total(shares)), "--ranks-per-node", std::to_string(shares[0].ranks)});
    const ProgramResult result = run_program(on_node(allocation_, shares[0].host, words, agent_environment(), false),
                                             120, [this] { agents_.attend(0); });
    const auto code = static_cast<Exit>(result.code.value_or(static_cast<int>(Exit::failed)));
    return code != Exit::does_not_fit && code != Exit::usage;
  }

  void wait(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) agents_.attend(100);
  }
  int stopped_between() {
    const BetweenStarts end = stopped_between_starts(!checkpoints_in(recipe_.checkpoint.dir).empty(),
                                                     ended_.has_value(), stop_.count(), recipe_.checkpoint.resume);
    events_.write({"end", {}, {}, static_cast<int>(end.code), end.text});
    screen_.note(end.text);
    return static_cast<int>(end.code);
  }

  StopSignalCounter stop_;  // declared first, so that a stop counts from here on
  LaunchScreen screen_;     // also takes launch's own messages, because the terminal may hang
  LaunchOptions options_;
  Events& events_;
  TrainCommand command_;
  Recipe recipe_;
  std::vector<std::string> variables_;
  Allocation allocation_;
  std::string run_;
  std::optional<std::string> interface_;
  Checkpoints found_;             // the checkpoints before the first start
  std::optional<Outcome> ended_;  // how the previous start ended
  bool ranks_run_ = false;
  std::vector<Host> absent_;  // left out at the first start, asked again at a restart
  Agents agents_;
};

}  // namespace

int launch(const LaunchOptions& options) {
  raise_file_limit();
  Events events(options.logs);
  try {
    int code = 0;
    bool screen_hangs = false;
    {
      Launch launch(options, events);
      code = launch.run();
      screen_hangs = launch.screen_hangs();
    }
    // exit() would wait for the stream that a thread is writing to.
    if (screen_hangs) std::_Exit(code);
    return code;
  } catch (const Error& error) {
    events.write({"refused", {}, {}, static_cast<int>(error.code()), error.what()});
    throw;
  }
}

}  // namespace strata::launcher
