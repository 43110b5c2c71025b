#include "launcher/launch/ranks/attempt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "launcher/control/watch/watch.h"
#include "launcher/launch/ranks/child.h"
#include "launcher/launch/ranks/rank_output.h"
#include "launcher/screen/run_text.h"

namespace strata::launcher {
namespace {

using Clock = SteadyClock;

// In seconds. A rank that waits for a device cannot be ended, and mpirun or srun waits for it.
constexpr double kAfterFailure = 30;  // for the other ranks to end on their own
constexpr double kRanksToEnd = 20;    // for the kernel to free a killed rank's memory

// A closed terminal sends SIGHUP twice (from the kernel and the shell), and one key press may reach launch in two ways.
// A second stop ends the run immediately, so it counts only if it comes later than this.
constexpr int kDebounce = 200;  // ms after the first one
volatile std::sig_atomic_t stop_signals = 0, first_stop_ms = 0;
void count_stop_signal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto ms = static_cast<std::sig_atomic_t>(now.tv_sec % 1'000'000 * 1000 + now.tv_nsec / 1'000'000);
  if (stop_signals == 0) {
    first_stop_ms = ms;
  } else if (signal == SIGHUP || (ms >= first_stop_ms && ms - first_stop_ms <= kDebounce)) {
    return;
  }
  stop_signals = stop_signals + 1;
}

// mpirun adds its own exit codes, and a shell adds 128 + signal.
int documented(int code) {
  for (const Exit known : {Exit::done, Exit::failed, Exit::usage, Exit::does_not_fit, Exit::corrupt, Exit::requeue})
    if (code == static_cast<int>(known)) return code;
  return static_cast<int>(Exit::failed);
}

// "n3 (ranks 4 to 5)", in the control service's words.
std::string with_ranks(const std::string& host, const RankStart& start) {
  int first = 0;
  for (const Share& share : start.shares) {
    if (share.host == host) {
      std::vector<int> ranks(static_cast<std::size_t>(share.ranks));
      std::iota(ranks.begin(), ranks.end(), first);
      return fmt::format("{} ({})", host, control::ranks_text(ranks, start.mesh));
    }
    first += share.ranks;
  }
  return host;
}

// The cause if neither the ranks nor the nodes report one: the output of mpirun or srun, with a rank's last line.
std::string cause_of_starter(const RankOutput& output, Starter starter, int code) {
  std::vector<std::string> words = output.starter_output();
  std::erase_if(words, [](const std::string& line) {
    // srun prints this at each start if Slurm does not bind processes. The ranks bind themselves.
    return line.find_first_not_of(" -\t") == std::string::npos || line.find("support for cpu binding") != line.npos;
  });
  if (words.size() > 12) words.erase(words.begin(), words.end() - 12);
  return fmt::format("{} ended with exit code {}{}{}{}", program_of(starter), code,
                     code > 128 ? fmt::format(" (signal {}, {})", code - 128, strsignal(code - 128)) : "",
                     output.last_message().empty()
                         ? " and without a message from a rank"
                         : fmt::format("; the last output of a rank: {}", output.last_message()),
                     words.empty() ? "" : fmt::format("; its output: {}", fmt::join(words, " ")));
}

// Sets `cause` and `printed` from the best source: first the agents, then a rank, then mpirun or srun. `failure`: a
// rank's last sentence if it is a cause.
void find_cause(Outcome& out, const std::string& failure, const RankOutput& output, const RankStart& start,
                Starter starter, int code) {
  std::string node;
  if (!out.lost.empty()) node = fmt::format("node {}", with_ranks(out.lost[0], start));
  out.printed = out.cause.empty() && !failure.empty();
  if (out.printed) {
    out.cause = failure;
    if (!node.empty() && failure.find(out.lost[0]) == std::string::npos) {
      out.cause += fmt::format("; {} no longer responds", node);
      out.printed = false;
    }
  }
  if (out.cause.empty() && !node.empty()) out.cause = fmt::format("{} is lost: it ended, or does not respond", node);
  if (out.cause.empty()) out.cause = cause_in(output.starter_output(), start.shares, start.mesh);
  if (out.cause.empty()) out.cause = cause_of_starter(output, starter, code);
}

// Ends a process in steps: asks it to end, and kills it some seconds later.
class Termination {
 public:
  Termination(Child& child, int signal) : child_(child), signal_(signal) {}
  bool begun() const { return begun_; }
  void begin() {
    if (begun_) return;
    begun_ = true;
    since_ = Clock::now();
    child_.send(signal_);
  }
  void escalate() {
    if (begun_ && seconds_since(since_) > 8) child_.send_to_group(SIGKILL);
  }

 private:
  Child& child_;
  int signal_;
  bool begun_ = false;
  Clock::time_point since_;
};

}  // namespace

StopSignalCounter::StopSignalCounter() {
  stop_signals = 0;
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP})
    if (std::signal(signal, SIG_IGN) != SIG_IGN || signal == SIGTERM || signal == SIGUSR1) {
      struct sigaction action {};
      action.sa_handler = count_stop_signal;
      sigaction(signal, &action, nullptr);
    }
  std::signal(SIGPIPE, SIG_IGN);
  // If launch were stopped, its agents would receive nothing from it and would end their ranks.
  for (const int signal : {SIGTSTP, SIGTTOU}) std::signal(signal, SIG_IGN);
}

int StopSignalCounter::count() const {
  return stop_signals;
}

Outcome run_ranks(const Allocation& allocation, const RankStart& start, Agents& agents, const StopSignalCounter& stop,
                  LaunchScreen& screen, const std::optional<std::filesystem::path>& logs) {
  RankOutput output(allocation.starter, screen, logs, total(start.shares),
                    start.again ? LogFile::Open::later : LogFile::Open::now);
  Child child(
      rank_program(allocation, start), [&](std::string_view line) { output.take(false, line); },
      [&](std::string_view line) { output.take(true, line); });
  // mpirun ends ranks on SIGINT as on SIGTERM. It does not receive SIGTERM (Program::holds_term), because a service
  // manager sends that to all processes at the same time, and mpirun would then kill the ranks before they have written
  // their checkpoint.
  Termination ending(child, allocation.starter == Starter::srun ? SIGTERM : SIGINT);
  Outcome out;
  bool passed_on = false;
  bool too_early = false;  // a stop was requested before the ranks could notice it
  bool cut_short = false;  // launch itself ends the ranks for some other cause
  std::optional<Clock::time_point> failed_at;
  const auto cut = [&] {
    cut_short = cut_short || (!ending.begun() && stop.count() == 0 && !output.end_reason().is_stop());
    ending.begin();
  };
  const auto has_ranks = [&](const std::string& host) {
    return std::any_of(start.shares.begin(), start.shares.end(),
                       [&](const Share& share) { return share.host == host; });
  };
  while (!child.is_over()) {
    std::vector<LineReader*> readers = agents.readers();
    readers.push_back(&child.out());
    readers.push_back(&child.errors());
    read_lines(readers, 100);
    agents.ping();
    // Send only SIGINT: any other signal makes Open MPI kill the ranks a second later. While it starts, so does SIGINT.
    if (stop.count() > 0 && !passed_on) {
      passed_on = true;
      too_early = !output.heard();
      if (too_early) {
        ending.begin();
      } else {
        screen.say("stopping on request: the run ends after this step; a second signal ends it immediately");
        child.send(SIGUSR1);
      }
    } else if (stop.count() > 1) {
      ending.begin();
    }
    for (const Agents::Lost& lost : agents.lost()) {
      if (!has_ranks(lost.host) || !out.lost.empty() || child.exit_code()) continue;
      out.lost.push_back(lost.host);
      // A rank may already have printed it, because the control service detected the loss.
      if (const std::string node = "node " + with_ranks(lost.host, start);
          output.failure().find(node) == std::string::npos)
        out.cause = fmt::format("{} is lost: {}", node, lost.why);
      cut();
    }
    if (!output.failure().empty() && !failed_at) failed_at = Clock::now();
    if (failed_at && seconds_since(*failed_at) > kAfterFailure) cut();
    ending.escalate();
  }
  output.finish();
  out.code = documented(child.exit_code().value_or(1));
  if (out.code == static_cast<int>(Exit::done) && out.lost.empty()) return out;
  for (const std::string& host : agents.silent(5))
    if (has_ranks(host) && std::find(out.lost.begin(), out.lost.end(), host) == out.lost.end())
      out.lost.push_back(host);
  std::vector<std::string> there;
  for (const Host& host : allocation.hosts)
    if (std::find(out.lost.begin(), out.lost.end(), host.name) == out.lost.end()) there.push_back(host.name);
  out.held = agents.end_ranks(there, kRanksToEnd);
  if (out.code == static_cast<int>(Exit::done)) out.code = static_cast<int>(Exit::failed);
  if (too_early && output.failure().empty()) {
    out.code = static_cast<int>(Exit::requeue);
    out.cause = fmt::format("the ranks had not started yet: run {} to start or resume",
                            start.again ? resume_command(start.resume) : "the same command");
    return out;
  }
  // If launch itself asked the ranks to stop, their reason ("a signal") is not the cause.
  const bool by_launch = cut_short && output.end_reason().kind == EndReason::Kind::signal;
  out.reason = by_launch ? EndReason{} : output.end_reason();
  const std::string failure = by_launch ? "" : output.failure();
  if (cut_short && failure.empty() && out.code == static_cast<int>(Exit::requeue))
    out.code = static_cast<int>(Exit::failed);
  // If mpirun or srun was ended together with its ranks (systemd ends all processes of a job together), its exit code
  // is meaningless.
  if (!failure.empty() && out.code == static_cast<int>(Exit::failed))
    out.code = output.failure_code().value_or(out.code);
  // scancel also ends the agents. If the ranks say that they were asked to stop, no node is lost.
  if (out.reason.is_stop()) {
    out.lost.clear();
    out.cause.clear();
  }
  find_cause(out, failure, output, start, allocation.starter, child.exit_code().value_or(-1));
  return out;
}

}  // namespace strata::launcher
