#include "launcher/control/watch/hub.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "launcher/control/watch/background_thread.h"
#include "launcher/control/watch/dump.h"

namespace strata::launcher::control {
namespace {

constexpr double kDumpTimeout = 5;  // seconds that ranks have to answer; most answer sooner
constexpr double kDumpEvery = 2;
constexpr double kLookInterval = 0.5;
constexpr double kHangTimeout = 5;  // seconds without a call of look() after which its thread hangs

// Runs in a thread that outlives the caller, because a drive may never answer.
std::future<bool> write_meanwhile(std::function<void(const std::string&, const std::string&)> write, std::string path,
                                  std::string text) {
  std::packaged_task<bool()> task([write = std::move(write), path = std::move(path), text = std::move(text)] {
    enter_background("strata-state");
    try {
      write(path, text);
      return true;
    } catch (const Error&) {
      return false;
    }
  });
  std::future<bool> written = task.get_future();
  try {
    std::thread(std::move(task)).detach();
  } catch (const std::system_error&) {  // no thread could be started, so the promise is broken and get() throws
  }
  return written;
}

}  // namespace

void write_atomically(const std::string& path, const std::string& text) {
  AtomicFile out(path);
  out.write(text);
  out.commit();
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Hub::Hub(NodeMemory& memory, Board& board, Setup setup)
    : memory_(memory),
      board_(board),
      setup_(std::move(setup)),
      watch_(setup_.limits, memory.map(), steady_seconds()),
      looked_(steady_seconds()),
      messages_(setup_.say) {}

void Hub::open() {
  if (!setup_.listener) return;
  const auto nodes = static_cast<int>(memory_.map().nodes.size());
  server_ = std::make_unique<NodeServer>(setup_.credentials, nodes, std::min(setup_.limits.timeout / 6, 5.0),
                                         NodeServer::Callbacks{[this](const pb::NodeReport& report) {
                                                                 receive(report);
                                                                 return is_looking();
                                                               },
                                                               [this](int node) {
                                                                 const std::lock_guard lock(mutex_);
                                                                 watch_.broke(node, steady_seconds());
                                                               }});
  limiter_ =
      std::make_unique<ConnectionLimiter>(std::move(*setup_.listener), static_cast<std::size_t>(4 * nodes + 16),
                                          [this](Descriptor connection) { server_->adopt(std::move(connection)); });
  setup_.listener.reset();
}

Hub::~Hub() {
  limiter_.reset();
  server_.reset();
}

void Hub::set_names(TaskNames names) {
  const std::lock_guard lock(mutex_);
  watch_.set_names(std::move(names));
}

std::uint32_t Hub::dump_number() const {
  const std::lock_guard lock(mutex_);
  return order_.dump_number();
}

void Hub::receive(const pb::NodeReport& report) {
  if (report.node() < 0 || static_cast<std::size_t>(report.node()) >= memory_.map().nodes.size()) return;
  std::vector<RankView> views;
  views.reserve(static_cast<std::size_t>(report.ranks_size()));
  for (const pb::RankReport& rank : report.ranks()) views.push_back(view_of(rank));
  const std::lock_guard lock(mutex_);
  watch_.heard(report.node(), views, steady_seconds());
  if (report.leaving()) watch_.left(report.node());
  if (collection_ && report.dump_number() >= collection_->number && report.dump_size() > 0)
    collection_->answers[report.node()] = report;
}

bool Hub::is_looking() const {
  return steady_seconds() - looked_.load() < kHangTimeout;
}

void Hub::look(bool resumed) {
  const double now = steady_seconds();
  looked_.store(now);
  finish_dump(now);
  finish_stuck(now);
  std::vector<Watch::Finding> findings;
  {
    const std::lock_guard lock(mutex_);
    if (resumed) watch_.resume(now);
    if (ending_ || now < next_look_) return;
    next_look_ = now + kLookInterval;
    findings = watch_.look(now);
  }
  for (const Watch::Finding& finding : findings) {
    board_.add_event(finding.text);
    switch (finding.kind) {
      case Watch::Finding::Kind::lost:
        return end({finding.text + "; the run ends", finding.rank});
      case Watch::Finding::Kind::stuck:
        return end_stalled_run(finding);
      default:
        messages_.print(finding.text);
    }
  }
}

void Hub::end(const NodeMemory::Verdict& verdict) {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    order_.set_verdict(verdict.text);
    order_.set_verdict_rank(verdict.rank);
    // Send while holding the lock, as everywhere, so that an older order never follows a newer one.
    if (server_) server_->order(order_);
  }
  setup_.end(verdict);
}

// First asks all ranks for their state, which may take some seconds. Gives the verdict when the answers have been
// written, or after some seconds if they have not, because the drive itself may hang.
void Hub::end_stalled_run(const Watch::Finding& finding) {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  dump([this, finding](const pb::Dump& dump) {
    if (const std::lock_guard lock(mutex_); left_) return;  // the run has continued and ended in the meantime
    const std::string path = fmt::format("{}/state-of-ranks-{}.txt", setup_.dump_folder, getpid());
    state_file_ = {finding, path, steady_seconds(),
                   write_meanwhile(setup_.write, path, finding.text + "\n\n" + text_of(dump))};
  });
}

void Hub::finish_stuck(double now) {
  if (!state_file_) return;
  std::future<bool>& written = state_file_->written;
  const bool ready = written.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  if (!ready && now - state_file_->since < setup_.to_write) return;
  bool well = false;
  try {
    well = ready && written.get();
  } catch (const std::future_error&) {
  }
  const StateFile file = *std::exchange(state_file_, std::nullopt);
  end({fmt::format("{}; the run ends, {}", file.finding.text,
                   well ? "and the state of all ranks is in " + file.path
                   : ready
                       ? file.path + " could not be written"
                       : fmt::format("{} could not be written within {} s", file.path, seconds_text(setup_.to_write))),
       file.finding.rank});
}

void Hub::fill(pb::Status& status) {
  const double now = steady_seconds();
  const std::lock_guard lock(mutex_);
  const NodeMap& map = memory_.map();
  for (std::size_t node = 0; node < map.nodes.size(); ++node) {
    pb::Node& entry = *status.add_nodes();
    entry.set_name(map.nodes[node].name);
    entry.set_first_rank(map.nodes[node].ranks.front());
    entry.set_ranks(static_cast<int>(map.nodes[node].ranks.size()));
    entry.set_heard_seconds(watch_.heard_ago(static_cast<int>(node), now));
  }
  for (const RankView& rank : watch_.ranks()) {
    pb::Rank& entry = *status.add_ranks();
    entry.set_rank(rank.rank);
    entry.set_node(map.of(rank.rank).name);
    entry.set_coordinates(watch_.names().mesh.coordinates_text({&rank.rank, 1}));
    entry.set_compute_seconds(rank.compute);
    entry.set_place(rank.text(watch_.names()));
    const int lane = rank.phase == runtime::Phase::training ? rank.main_lane(watch_.names()) : -1;
    entry.set_place_seconds(rank.age(lane));
    entry.set_heard_seconds(rank.beat_age);
  }
  status.set_slowest_rank(watch_.slowest());
}

void Hub::dump(std::function<void(pb::Dump)> done) {
  {
    const std::lock_guard lock(mutex_);
    if (!left_) {
      askers_.push_back(std::move(done));
      return begin_dump(steady_seconds());
    }
  }
  done({});
}

void Hub::begin_dump(double now) {
  if (collection_ || askers_.empty() || now < next_dump_) return;
  order_.set_dump_number(order_.dump_number() + 1);
  collection_ = {order_.dump_number(), now, {}};
  if (server_) server_->order(order_);
}

void Hub::finish_dump(double now) {
  std::optional<Collection> ended;
  std::vector<std::function<void(pb::Dump)>> askers;
  {
    const std::lock_guard lock(mutex_);
    begin_dump(now);
    if (!collection_ ||
        (collection_->answers.size() < memory_.map().nodes.size() && now - collection_->since <= kDumpTimeout))
      return;
    ended = std::exchange(collection_, std::nullopt);
    askers = std::exchange(askers_, {});
    next_dump_ = now + kDumpEvery;
  }
  pb::Dump dump;
  for (auto& [node, report] : ended->answers)
    for (pb::RankDump& rank : *report.mutable_dump()) *dump.add_ranks() = std::move(rank);
  std::sort(dump.mutable_ranks()->begin(), dump.mutable_ranks()->end(),
            [](const pb::RankDump& a, const pb::RankDump& b) { return a.rank() < b.rank(); });
  for (const auto& done : askers) done(dump);
}

void Hub::leave() {
  std::vector<std::function<void(pb::Dump)>> askers;
  {
    const std::lock_guard lock(mutex_);
    ending_ = left_ = true;
    order_.set_ended(true);
    askers = std::exchange(askers_, {});
    if (server_) server_->order(order_);
  }
  for (const auto& done : askers) done({});
}

}  // namespace strata::launcher::control
