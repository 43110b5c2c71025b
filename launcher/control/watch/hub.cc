#include "launcher/control/watch/hub.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include "launcher/control/client/ctl.h"

namespace strata::launcher::control {
namespace {

constexpr double kToTell = 5;  // in which ranks that can tell what they do have told
constexpr double kLookEvery = 0.5;

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Hub::Hub(NodeMemory& memory, Board& board, Setup setup)
    : memory_(memory), board_(board), setup_(std::move(setup)), watch_(setup_.limits, memory.map(), steady_seconds()) {}

void Hub::open() {
  if (!setup_.listener) return;
  const auto nodes = static_cast<int>(memory_.map().nodes.size());
  server_ = std::make_unique<NodeServer>(setup_.credentials, nodes, std::min(setup_.limits.timeout / 6, 5.0),
                                         NodeServer::Answers{[this](const pb::NodeReport& report) { told(report); },
                                                             [this](int node) {
                                                               const std::lock_guard lock(mutex_);
                                                               watch_.broke(node, steady_seconds());
                                                             }});
  door_ = std::make_unique<Doorkeeper>(std::move(*setup_.listener), static_cast<std::size_t>(4 * nodes + 16),
                                       [this](Descriptor guest) { server_->adopt(std::move(guest)); });
  setup_.listener.reset();
}

Hub::~Hub() {
  door_.reset();
  server_.reset();
}

void Hub::know(TaskNames names) {
  const std::lock_guard lock(mutex_);
  watch_.know(std::move(names));
}

std::uint32_t Hub::dump_number() const {
  const std::lock_guard lock(mutex_);
  return order_.dump_number();
}

void Hub::told(const pb::NodeReport& report) {
  if (report.node() < 0 || static_cast<std::size_t>(report.node()) >= memory_.map().nodes.size()) return;
  std::vector<RankView> views;
  views.reserve(static_cast<std::size_t>(report.ranks_size()));
  for (const pb::RankReport& rank : report.ranks()) views.push_back(view_of(rank));
  const std::lock_guard lock(mutex_);
  watch_.heard(report.node(), views, steady_seconds());
  if (report.leaving()) watch_.left(report.node());
  for (Asked& asked : asked_)
    if (report.dump_number() == asked.number && report.dump_size() > 0) asked.answers[report.node()] = report;
}

void Hub::look(bool resumed) {
  const double now = steady_seconds();
  finish_dumps(now);
  std::vector<Watch::Finding> findings;
  {
    const std::lock_guard lock(mutex_);
    if (resumed) watch_.resume(now);
    if (ending_ || now < next_look_) return;
    next_look_ = now + kLookEvery;
    findings = watch_.look(now);
  }
  for (const Watch::Finding& finding : findings) {
    board_.add_event(finding.text);
    switch (finding.kind) {
      case Watch::Finding::Kind::lost:
        return end({finding.text + "; the run ends", finding.rank});
      case Watch::Finding::Kind::stuck:
        return end_stuck(finding);
      default:
        setup_.say(finding.text);
    }
  }
}

void Hub::end(const NodeMemory::Verdict& verdict) {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    order_.set_verdict(verdict.text);
    order_.set_verdict_rank(verdict.rank);
  }
  if (server_) server_->order(order_);
  setup_.end(verdict);
}

// First what all of them do, which may take the ranks some seconds to tell.
void Hub::end_stuck(const Watch::Finding& finding) {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  dump([this, finding](const pb::Dump& dump) {
    const std::string path = fmt::format("{}/state-of-ranks-{}.txt", setup_.dump_folder, getpid());
    std::ofstream out(path);
    out << finding.text << "\n\n" << text_of(dump);
    out.close();
    end({fmt::format("{}; the run ends, {}", finding.text,
                     out ? "and what all ranks were in is in " + path : path + " could not be written"),
         finding.rank});
  });
}

void Hub::fill(pb::Status& status) {
  const double now = steady_seconds();
  const std::lock_guard lock(mutex_);
  const NodeMap& map = memory_.map();
  for (std::size_t node = 0; node < map.nodes.size(); ++node) {
    pb::Node& told = *status.add_nodes();
    told.set_name(map.nodes[node].name);
    told.set_first_rank(map.nodes[node].ranks.front());
    told.set_ranks(static_cast<int>(map.nodes[node].ranks.size()));
    told.set_heard_seconds(watch_.heard_ago(static_cast<int>(node), now));
  }
  for (const RankView& rank : watch_.ranks()) {
    pb::Rank& told = *status.add_ranks();
    told.set_rank(rank.rank);
    told.set_node(map.of(rank.rank).name);
    told.set_compute_seconds(rank.compute);
    told.set_place(rank.text(watch_.names()));
    const int lane = rank.phase == runtime::Phase::training ? rank.main_lane(watch_.names()) : -1;
    told.set_place_seconds(lane < 0 ? rank.phase_age : rank.lanes[static_cast<std::size_t>(lane)].age);
    told.set_heard_seconds(rank.beat_age);
  }
  status.set_slowest_rank(watch_.slowest());
}

std::vector<Hub::RankFigures> Hub::figures() {
  const std::lock_guard lock(mutex_);
  std::vector<RankFigures> out;
  for (const RankView& rank : watch_.ranks())
    out.push_back({rank.rank, memory_.map().of(rank.rank).name, rank.compute});
  return out;
}

void Hub::dump(std::function<void(pb::Dump)> done) {
  pb::NodeOrder order;
  {
    const std::lock_guard lock(mutex_);
    order_.set_dump_number(order_.dump_number() + 1);
    order = order_;
    asked_.push_back({order.dump_number(), steady_seconds(), {}, std::move(done)});
  }
  if (server_) server_->order(order);
}

void Hub::finish_dumps(double now) {
  std::vector<Asked> ended;
  {
    const std::lock_guard lock(mutex_);
    const auto over = [&](const Asked& asked) {
      return asked.answers.size() == memory_.map().nodes.size() || now - asked.since > kToTell;
    };
    const auto first = std::stable_partition(asked_.begin(), asked_.end(), [&](const Asked& a) { return !over(a); });
    std::move(first, asked_.end(), std::back_inserter(ended));
    asked_.erase(first, asked_.end());
  }
  for (Asked& asked : ended) {
    pb::Dump dump;
    for (auto& [node, report] : asked.answers)
      for (pb::RankDump& rank : *report.mutable_dump()) *dump.add_ranks() = std::move(rank);
    std::sort(dump.mutable_ranks()->begin(), dump.mutable_ranks()->end(),
              [](const pb::RankDump& a, const pb::RankDump& b) { return a.rank() < b.rank(); });
    asked.done(std::move(dump));
  }
}

void Hub::leave() {
  std::vector<Asked> left;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    order_.set_ended(true);
    left = std::exchange(asked_, {});
  }
  for (Asked& asked : left) asked.done({});
  if (server_) server_->order(order_);
}

}  // namespace strata::launcher::control
