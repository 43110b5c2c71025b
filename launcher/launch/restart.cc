#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/quantity.h"
#include "launcher/launch/launch.h"
#include "launcher/screen/run_text.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/job/requirements.h"

namespace strata::launcher {
namespace {

// Whether "HOST:PORT", which the recipe has already checked, names one particular node.
bool is_of_one_node(std::string_view address) {
  if (address.find(':') == std::string_view::npos || address.starts_with("unix:")) return false;
  const std::string_view host = address.substr(0, address.rfind(':'));
  return !host.starts_with("127.") && host != "localhost" && host != "[::1]" && host != "0.0.0.0" && host != "[::]" &&
         host != "::1" && host != "::";
}

int slots_on(const std::vector<Host>& hosts, int default_slots) {
  int ranks = 0;
  for (const Host& host : hosts) ranks += host.slots.value_or(default_slots);
  return ranks;
}

// Like distribute_ranks(), but each node takes whole groups of neighbouring ranks if all groups fit that way.
std::vector<Share> distribute_groups(const std::vector<Host>& hosts, int ranks, int group, int default_slots) {
  std::vector<Host> groups = hosts;
  for (Host& host : groups) host.slots = host.slots.value_or(default_slots) / group;
  std::vector<Share> shares = distribute_ranks(groups, ranks / group, default_slots);
  if (shares.empty()) return distribute_ranks(hosts, ranks, default_slots);
  for (Share& share : shares) share.ranks *= group;
  return shares;
}

// "one replica (parallel.tensor = 2, parallel.stages = 4)"
std::string replica_text(const runtime::Recipe::Parallel& parallel) {
  std::vector<std::string> keys;
  if (parallel.tensor > 1) keys.push_back(fmt::format("parallel.tensor = {}", parallel.tensor));
  if (parallel.stages > 1) keys.push_back(fmt::format("parallel.stages = {}", parallel.stages));
  return keys.empty() ? "a run" : fmt::format("one replica of the model ({})", fmt::join(keys, ", "));
}

}  // namespace

std::string why_final(const Outcome& ended, const std::optional<Outcome>& before) {
  switch (static_cast<Exit>(ended.code)) {
    case Exit::done:
      return "it is done";
    case Exit::requeue:
      return "it was stopped on request";
    case Exit::usage:
    case Exit::does_not_fit:
    case Exit::corrupt:
      return fmt::format("exit code {} would recur", ended.code);
    case Exit::failed:
      break;
  }
  if (ended.reason.is_stop()) return "it was stopped on request";
  if (ended.reason.kind == EndReason::Kind::overflow) return "fp16 would overflow again";
  if (before && ended.reason.kind == EndReason::Kind::not_finite && ended.reason == before->reason)
    return "the same failure occurred twice, at the same step";
  return {};
}

double restart_wait(int number) {
  return std::min(120.0, std::ldexp(1.0, std::min(number, 20)));
}

std::int64_t global_batch(const runtime::Recipe& recipe, int ranks) {
  return recipe.training.micro_batch_size * recipe.data_ranks(ranks) * recipe.accumulation_steps(ranks);
}

std::vector<std::string> batch_sets(const runtime::Recipe& recipe, std::int64_t batch, int ranks) {
  if (recipe.training.global_batch_size) return {};
  if (recipe.training.gradient_accumulation_steps)
    return {fmt::format("training.gradient_accumulation_steps={}",
                        batch / (recipe.training.micro_batch_size * recipe.data_ranks(ranks)))};
  return {fmt::format("training.global_batch_size={}", batch)};
}

Checkpoints checkpoints_in(const std::optional<std::filesystem::path>& folder) {
  Checkpoints out;
  std::error_code error;
  if (!folder) return out;
  for (const auto& entry : std::filesystem::directory_iterator(*folder, error))
    if (runtime::is_checkpoint(entry.path()))
      if (const auto time = std::filesystem::last_write_time(entry.path() / "manifest.json", error); !error)
        out.emplace(entry.path(), time);
  return out;
}

std::vector<std::string> resume_sets(const runtime::Recipe& recipe, const Checkpoints& before) {
  if (recipe.checkpoint.resume == "auto") return {};
  for (const auto& one : checkpoints_in(recipe.checkpoint.dir))
    if (!before.contains(one)) return {"checkpoint.resume=auto"};
  return {};
}

std::vector<std::string> control_sets(const runtime::Recipe& recipe) {
  std::vector<std::string> out;
  if (is_of_one_node(recipe.control.listen)) out.emplace_back("control.listen=auto");
  if (is_of_one_node(recipe.control.metrics)) out.emplace_back("control.metrics=off");
  return out;
}

std::vector<Share> max_ranks(const std::vector<Host>& hosts, int default_slots, const runtime::Recipe& recipe,
                             std::int64_t batch, const std::function<bool(const std::vector<Share>&)>& fits) {
  const int replica = recipe.parallel.replica();
  for (int replicas = slots_on(hosts, default_slots) / replica; replicas > 0; --replicas) {
    const std::int64_t at_once = replicas * recipe.training.micro_batch_size;
    if (batch % at_once != 0 || !runtime::takes_micro_batches(recipe.parallel, batch / at_once)) continue;
    if (std::vector<Share> shares = distribute_groups(hosts, replicas * replica, recipe.parallel.tensor, default_slots);
        fits(shares))
      return shares;
  }
  return {};
}

std::string why_no_ranks(const std::vector<Host>& hosts, int default_slots, const runtime::Recipe& recipe,
                         std::int64_t batch) {
  const std::string nodes = counted(hosts.size(), "remaining node");
  if (const int ranks = slots_on(hosts, default_slots); ranks < recipe.parallel.replica())
    return fmt::format(
        "the {} {} room for {}, but {} needs {}: start again with as many ranks, or with other parallel.* keys, which "
        "its checkpoints allow",
        nodes, for_count(hosts.size(), "has", "have"), counted(ranks, "rank"), replica_text(recipe.parallel),
        counted(recipe.parallel.replica(), "rank"));
  return fmt::format("on the {}, no number of {} that divides a step of {} sequences fits", nodes,
                     recipe.parallel.replica() > 1 ? "replicas" : "ranks", batch);
}

std::string idle_text(const std::vector<Host>& hosts, int default_slots, const std::vector<Share>& shares,
                      const runtime::Recipe& recipe, std::int64_t batch) {
  std::vector<Share> idle;
  for (const Host& host : hosts) {
    const auto used = std::ranges::find(shares, host.name, &Share::host);
    const int ranks = host.slots.value_or(default_slots) - (used == shares.end() ? 0 : used->ranks);
    if (ranks > 0) idle.push_back({host.name, ranks});
  }
  const int ranks = total(idle);
  if (ranks == 0) return {};
  const int replica = recipe.parallel.replica();
  const runtime::Recipe::Zero& zero = recipe.zero;
  const bool grouped = zero.parameters_group != runtime::kAllRanks || zero.gradients_group != runtime::kAllRanks ||
                       zero.optimizer_group != runtime::kAllRanks;
  return fmt::format("{} {} idle, on {}: a run has as many {} as divide a step of {} sequences{} and fit",
                     counted(ranks, "rank"), for_count(ranks, "stays", "stay"), describe(idle),
                     replica > 1 ? fmt::format("whole replicas of {}", counted(replica, "rank")) : "ranks", batch,
                     grouped ? ", make whole groups (zero.*_group)" : "");
}

BetweenStarts stopped_between_starts(bool kept, bool started, int times, std::string_view resume) {
  // Before the first start, the same command would do what the user asked, so it resumes only with "auto".
  const bool resumes = kept && (started || resume == "auto");
  return {kept || !started ? Exit::requeue : Exit::failed,
          fmt::format("{}: {}",
                      times > 1 && started ? "ended at once, after a second request to stop"
                      : started            ? "stopped on request before a restart"
                                           : "stopped on request before any rank was started",
                      resumes    ? fmt::format("run {} to resume from the newest checkpoint", resume_command(resume))
                      : !started ? "run the same command to start"
                                 : "there is no checkpoint to resume from")};
}

}  // namespace strata::launcher
