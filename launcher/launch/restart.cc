#include "launcher/launch/restart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "launcher/screen/run_text.h"
#include "runtime/checkpoint/choice.h"

namespace strata::launcher {
namespace {

// Whether a "HOST:PORT", already checked by the recipe, names one particular node.
bool is_of_one_node(std::string_view address) {
  if (address.find(':') == std::string_view::npos || address.starts_with("unix:")) return false;
  const std::string_view host = address.substr(0, address.rfind(':'));
  return !host.starts_with("127.") && host != "localhost" && host != "[::1]" && host != "0.0.0.0" && host != "[::]" &&
         host != "::1" && host != "::";
}

}  // namespace

std::string why_final(const Ended& ended, const std::optional<Ended>& before) {
  switch (static_cast<Exit>(ended.code)) {
    case Exit::done:
      return "it is done";
    case Exit::requeue:
      return "it was stopped on request";
    case Exit::usage:
    case Exit::does_not_fit:
    case Exit::corrupt:
      return fmt::format("exit code {} would come again", ended.code);
    case Exit::failed:
      break;
  }
  if (ended.reason.is_stop()) return "it was stopped on request";
  if (ended.reason.kind == EndReason::Kind::overflow) return "fp16 would overflow again";
  if (before && ended.reason.kind == EndReason::Kind::not_finite && ended.reason == before->reason)
    return "the same came twice, at the same step";
  return {};
}

double restart_wait(int number) {
  return std::min(120.0, std::ldexp(1.0, std::min(number, 20)));
}

std::int64_t global_batch(const runtime::Recipe& recipe, int ranks) {
  return recipe.training.micro_batch_size * recipe.parallel.data_ranks(ranks) * recipe.accumulation_steps(ranks);
}

std::vector<std::string> batch_sets(const runtime::Recipe& recipe, std::int64_t batch, int ranks) {
  if (recipe.training.global_batch_size) return {};
  if (recipe.training.gradient_accumulation_steps)
    return {fmt::format("training.gradient_accumulation_steps={}",
                        batch / (recipe.training.micro_batch_size * recipe.parallel.data_ranks(ranks)))};
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

std::vector<std::string> front_sets(const runtime::Recipe& recipe) {
  std::vector<std::string> out;
  if (is_of_one_node(recipe.control.listen)) out.emplace_back("control.listen=auto");
  if (is_of_one_node(recipe.control.metrics)) out.emplace_back("control.metrics=off");
  return out;
}

std::vector<Share> most_ranks(const std::vector<Host>& hosts, int room, const runtime::Recipe& recipe,
                              std::int64_t batch, const std::function<bool(const std::vector<Share>&)>& fits) {
  int most = 0;
  for (const Host& host : hosts) most += host.slots.value_or(room);
  for (int ranks = most; ranks > 0; --ranks) {
    if (batch % (ranks * recipe.training.micro_batch_size) != 0) continue;
    if (std::vector<Share> shares = spread(hosts, ranks, room); fits(shares)) return shares;
  }
  return {};
}

BetweenStarts stopped_between_starts(bool kept, bool started, int times, std::string_view resume) {
  // Before the first start the same command does what it would have done, so it resumes only with "auto".
  const bool resumes = kept && (started || resume == "auto");
  return {kept || !started ? Exit::requeue : Exit::failed,
          fmt::format("{}: {}",
                      times > 1 && started ? "ended at once, as it was asked to stop twice"
                      : started            ? "stopped on request before a restart"
                                           : "stopped on request before any rank was started",
                      resumes    ? fmt::format("run {} to resume from the newest checkpoint", resume_command(resume))
                      : !started ? "run the same command to start"
                                 : "there is no checkpoint to resume from")};
}

}  // namespace strata::launcher
