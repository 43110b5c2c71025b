#include "launcher/control/watch/rank_monitor.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <future>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "launcher/control/watch/background_thread.h"
#include "launcher/control/watch/dump.h"
#include "launcher/screen/printable.h"

namespace strata::launcher::control {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kSilent = 3 * kSecond;        // a rank that did not run for this long cannot report for its node
constexpr std::int64_t kVerdictDelay = kSecond / 4;  // by then all ranks of a node have seen a verdict
constexpr std::int64_t kTurn = kSecond * 7 / 10;
constexpr int kMaxTurns = 4;
constexpr auto kRelaxed = std::memory_order_relaxed;
// How long ranks have to unwind, that is, to drain their lanes and close their files.
constexpr std::chrono::seconds kUnwindTimeout{6};

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

// MiB that this process has read, written and touched for the first time. They measure its progress while it loads,
// hashes or writes.
std::uint64_t moved_mib() {
  std::uint64_t bytes = 0;
  std::ifstream in("/proc/self/io");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("rchar:") || line.starts_with("wchar:")) bytes += std::strtoull(line.c_str() + 6, nullptr, 10);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  bytes += static_cast<std::uint64_t>(usage.ru_minflt + usage.ru_majflt) * 4096;
  return bytes >> 20;
}

// Ends this rank for a reason that the control plane found. Sets the run's abort token, which ends every wait of the
// program. If the process still runs some seconds later (in a call of MPI or of a driver that polls no token), ends it
// with Exit::failed. Prints `text` on stderr if `prints`. Returns immediately; any thread may call it.
void end_run(AbortToken& token, const std::string& text, bool prints) {
  const auto last_resort = [] {
    enter_background("strata-end");
    std::this_thread::sleep_for(kUnwindTimeout);
    // Not exit(), because other threads still use what it would destroy.
    std::_Exit(static_cast<int>(Exit::failed));
  };
  bool is_armed = true;
  try {
    // Detached, because the process ends before the thread does, or is ended by it. Started before the print below,
    // which never returns if the reader of stderr has stopped.
    std::thread(last_resort).detach();
  } catch (const std::system_error&) {
    is_armed = false;
  }
  if (prints) print_failure(text, Exit::failed);
  // Rank -1: no rank is at fault that could print this. `self_reported` prevents the sentence from being printed again.
  token.set({-1, text, Exit::failed, true});
  if (!is_armed) last_resort();
}

}  // namespace

pb::NodeReport report_of(NodeMemory& memory, std::int64_t now) {
  pb::NodeReport out;
  out.set_node(memory.node());
  for (std::size_t i = 0; i < memory.ranks().size(); ++i)
    *out.add_ranks() = report_of(memory.ranks()[i], memory.progress_of(i), now);
  return out;
}

RankMonitor::RankMonitor(NodeMemory& memory, Setup setup)
    : memory_(memory),
      setup_(std::move(setup)),
      rank_(memory.ranks()[static_cast<std::size_t>(memory.index())]),
      rank0_(seconds(now_ns()), memory.node() == 0 ? NodeLiveness::State::present : NodeLiveness::State::unreached),
      last_(now_ns()) {
  prepare_backtraces();
  memory_.progress().beat.store(now_ns(), kRelaxed);
  std::promise<void> started;
  thread_ = start_background_thread("strata-monitor", [this, &started](const std::stop_token& stop) {
    try {
      if (setup_.start) setup_.start();
    } catch (...) {
      return started.set_exception(std::current_exception());
    }
    started.set_value();
    run(stop);
  });
  try {
    started.get_future().get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

RankMonitor::~RankMonitor() {
  thread_.request_stop();
  thread_.join();
  if (stream_) stream_->leave(report(now_ns()));
}

void RankMonitor::set_names(TaskNames names) {
  const std::lock_guard lock(mutex_);
  names_ = std::move(names);
}

void RankMonitor::run(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;
  while (!stop.stop_requested()) {
    const std::int64_t now = now_ns();
    // A process that was stopped until now (by Ctrl-Z or a debugger) has neither received nor sent reports.
    const bool resumed = now - last_ > kSilent;
    last_ = now;
    if (resumed) {
      const std::lock_guard rank0_lock(mutex_);
      rank0_.resume(seconds(now));
    }
    beat(now);
    if (ended()) return;
    answer_dump();
    if (setup_.tick) setup_.tick(resumed);
    if (is_reporter(now)) send_report(now);
    look_at_rank0(now);
    wake.wait_for(lock, stop, kTick, [] { return false; });
  }
}

void RankMonitor::beat(std::int64_t now) {
  runtime::RankProgress& progress = memory_.progress();
  progress.beat.store(now, kRelaxed);
  if (progress.phase.load(kRelaxed) == runtime::Phase::training) return;
  const std::uint64_t moved = moved_mib();
  progress.count(moved - std::min(moved, std::exchange(moved_, moved)));
}

bool RankMonitor::ended() {
  const auto verdict = memory_.verdict();
  if (!verdict) return false;
  const std::int64_t now = now_ns();
  // All ranks of a node leave together, because otherwise the others would miss the first one before they know why. If
  // rank 0 is lost, nodes print the cause one after another, and their launcher ends those that have not yet.
  const int turn = verdict->rank == -1 ? std::clamp(memory_.node() - 1, 0, kMaxTurns) : 0;
  if (now - verdict->given < kVerdictDelay + turn * kTurn) return false;
  // Print one sentence for all nodes if rank 0 can print it, otherwise one per node.
  const bool prints = memory_.node() == 0 ? rank_ == 0 || (verdict->rank == 0 && is_reporter(now))
                                          : verdict->rank == -1 && is_reporter(now);
  end_run(*setup_.token, verdict->text, prints);
  return true;
}

// Whether this rank sends the node's reports, because it is the lowest of the node's ranks whose processes run.
bool RankMonitor::is_reporter(std::int64_t now) const {
  for (int other = 0; other < memory_.index(); ++other)
    if (now - memory_.progress_of(static_cast<std::size_t>(other)).beat.load(kRelaxed) < kSilent) return false;
  return true;
}

std::vector<runtime::Phase> RankMonitor::phases() const {
  std::vector<runtime::Phase> out(memory_.ranks().size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = memory_.progress_of(i).phase.load(kRelaxed);
  return out;
}

pb::NodeReport RankMonitor::report(std::int64_t now) {
  pb::NodeReport out = report_of(memory_, now);
  const std::uint32_t asked = setup_.dump_number ? setup_.dump_number() : dump_number_.load();
  if (asked != dump_reported_) {
    memory_.asked().store(asked);
    const auto answered = [&](std::size_t i) {
      return memory_.answer(i).number.load() == asked || now - memory_.progress_of(i).beat.load(kRelaxed) >
                                                             kSecond;  // its process is not running and cannot answer
    };
    bool all = true;
    for (std::size_t i = 0; i < memory_.ranks().size(); ++i) all = all && answered(i);
    if (!all) return out;
    dump_reported_ = asked;
    out.set_dump_number(asked);
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < memory_.ranks().size(); ++i) {
      const NodeMemory::Answer& answer = memory_.answer(i);
      const std::string traces =
          answer.number.load() == asked
              ? std::string(answer.text.data(), std::min<std::size_t>(answer.size.load(), answer.text.size()))
              : "";
      *out.add_dump() =
          dump_of(memory_.ranks()[i], memory_.map().of(rank_).name, memory_.progress_of(i), names_, traces);
    }
  }
  return out;
}

void RankMonitor::answer_dump() {
  NodeMemory::Answer& answer = memory_.answer(static_cast<std::size_t>(memory_.index()));
  const std::uint32_t asked = memory_.asked().load();
  if (asked == answer.number.load()) return;
  const std::string text = backtraces();
  const std::size_t size = std::min(text.size(), answer.text.size());
  std::memcpy(answer.text.data(), text.data(), size);
  answer.size.store(static_cast<std::uint32_t>(size));
  answer.number.store(asked);
}

void RankMonitor::send_report(std::int64_t now) {
  const std::uint32_t asked = setup_.dump_number ? setup_.dump_number() : dump_number_.load();
  // Report once per second, and more often while a dump is being requested or ranks enter other phases.
  std::vector<runtime::Phase> phases_now = phases();
  if (now - sent_at_ < kSecond && asked == dump_reported_ && phases_now == sent_phases_) return;
  sent_at_ = now;
  sent_phases_ = std::move(phases_now);
  if (setup_.receive) return setup_.receive(report(now));
  if (memory_.node() == 0) return;
  if (!stream_)
    stream_ = std::make_unique<NodeStream>(setup_.target, setup_.credentials,
                                           [this](const pb::NodeOrder& order) { apply(order); });
  stream_->send(report(now));
}

void RankMonitor::apply(const pb::NodeOrder& order) {
  {
    const std::lock_guard lock(mutex_);
    rank0_.record_contact(seconds(now_ns()));
    if (order.ended()) rank0_.leave();
  }
  dump_number_.store(order.dump_number());
  if (!order.verdict().empty()) memory_.give({order.verdict(), order.verdict_rank()});
}

// Gives the node's own verdict if rank 0 is lost. A node that never reached rank 0 gives no verdict, because rank 0
// reports that node (Watch).
void RankMonitor::look_at_rank0(std::int64_t now) {
  const bool began = !std::exchange(reporter_, is_reporter(now)) && reporter_;
  if (rank_ == 0 || !reporter_) return;
  std::string place;
  double silent = 0;
  {
    const std::lock_guard lock(mutex_);
    // A rank that has just become its node's reporter has not received anything yet.
    if (memory_.node() == 0)
      rank0_.record_contact(std::max(rank0_.heard(), seconds(memory_.progress_of(0).beat.load(kRelaxed))));
    else if (began)
      rank0_.resume(seconds(now));
    if (rank0_.look(seconds(now), setup_.timeout) != NodeLiveness::Change::silent) return;
    silent = seconds(now) - rank0_.heard();
    place = view_of(report_of(rank_, memory_.progress(), now)).text(names_);
  }
  const Node& here = memory_.map().of(rank_);
  const std::string time = seconds_text(silent);
  if (memory_.node() == 0)
    memory_.give({fmt::format("{} has stalled: its process has not run for {} s; without it no rank is watched, and "
                              "the run ends; last in {}",
                              setup_.rank0, time, place),
                  0});
  else
    memory_.give({fmt::format("{} was not heard from on {} ({}) for {} s: it is down, or the network between them is; "
                              "last in {}; the ranks of this node end",
                              setup_.rank0, here.name, ranks_text(here.ranks), time, place),
                  -1});
}

}  // namespace strata::launcher::control
