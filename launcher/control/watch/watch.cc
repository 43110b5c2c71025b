#include "launcher/control/watch/watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/index.h"
#include "launcher/median.h"

namespace strata::launcher::control {
namespace {

// A process that did not run for this many seconds counts as stopped.
constexpr double kStopped = 5;
// Task times vary, so a task counts as stalled only after this many medians.
constexpr double kMedians = 10;

double infinite_if_zero(double limit) {
  return limit > 0 ? limit : std::numeric_limits<double>::infinity();
}

// Orders ranks with the same number of steps, because an evaluation comes after one step and before the next.
int stage_of(const RankView& rank) {
  const int training = 2 * static_cast<int>(runtime::Phase::training);
  if (rank.phase == runtime::Phase::evaluating) return training + 1;
  if (rank.phase != runtime::Phase::training) return 2 * static_cast<int>(rank.phase);
  const bool in_next = std::any_of(rank.lanes.begin(), rank.lanes.end(), [&](const RankView::Lane& lane) {
    return lane.place.task >= 0 && lane.place.step > rank.step;
  });
  return in_next ? training + 2 : training;
}

}  // namespace

std::string ranks_text(std::span<const int> ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size()))
    return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  return fmt::format("ranks {}", fmt::join(ranks, ", "));
}

std::string ranks_text(std::span<const int> ranks, const runtime::Mesh& mesh) {
  const std::string where = mesh.coordinates_text(ranks);
  return ranks_text(ranks) + (where.empty() ? "" : ": " + where);
}

std::string seconds_text(double seconds) {
  return seconds < 10 && seconds != std::floor(seconds) ? fmt::format("{:.1f}", seconds)
                                                        : fmt::format("{:.0f}", seconds);
}

Watch::Watch(const Limits& limits, NodeMap map, double now)
    : limits_(limits),
      stall_limit_(std::min(infinite_if_zero(limits.warn_after), infinite_if_zero(limits.stuck_after))),
      map_(std::move(map)),
      ranks_(map_.node_of.size()),
      reported_(ranks_.size(), now),
      nodes_(map_.nodes.size(), NodeLiveness(now)),
      still_(ranks_.size()) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].rank = static_cast<int>(rank);
    still_[rank].since = now;
  }
}

void Watch::heard(int node, std::span<const RankView> ranks, double now) {
  if (node < 0 || index(node) >= nodes_.size()) return;
  nodes_[index(node)].record_contact(now);
  for (const RankView& rank : ranks) {
    if (rank.rank < 0 || index(rank.rank) >= ranks_.size() || map_.node_of[index(rank.rank)] != node) continue;
    Still& still = still_[index(rank.rank)];
    if (rank.counter != still.counter || rank.phase != still.phase) {
      still.counter = rank.counter;
      still.phase = rank.phase;
      still.since = now;
    }
    ranks_[index(rank.rank)] = rank;
    reported_[index(rank.rank)] = now;
  }
}

void Watch::left(int node) {
  if (node >= 0 && index(node) < nodes_.size()) nodes_[index(node)].leave();
}

void Watch::broke(int node, double now) {
  if (node >= 0 && index(node) < nodes_.size()) nodes_[index(node)].lose_connection(now);
}

void Watch::resume(double now) {
  for (NodeLiveness& node : nodes_) node.resume(now);
  std::fill(reported_.begin(), reported_.end(), now);
  for (Still& still : still_) still.since = now;
  for (RankView& rank : ranks_) {
    rank.beat_age = rank.phase_age = 0;
    for (RankView::Lane& lane : rank.lanes) lane.age = 0;
  }
}

double Watch::heard_ago(int node, double now) const {
  return now - nodes_[index(node)].heard();
}

// Finds a lost node, and nodes that never reached rank 0. The latter are not lost: MPI may reach them although the
// control plane does not.
std::vector<Watch::Finding> Watch::find_missed(double now) {
  std::vector<Finding> out;
  std::vector<std::string> unreachable;
  int first = -1;
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    const Node& known = map_.nodes[node];
    const NodeLiveness::Change change = nodes_[node].look(now, limits_.timeout);
    if (change == NodeLiveness::Change::unreachable) {
      unreachable.push_back(known.name);
      if (first < 0) first = known.ranks.front();
    }
    if (change != NodeLiveness::Change::silent && change != NodeLiveness::Change::ended) continue;
    // Name the rank of the node that has done the fewest steps.
    const auto behind = std::min_element(known.ranks.begin(), known.ranks.end(),
                                         [&](int a, int b) { return ranks_[index(a)].step < ranks_[index(b)].step; });
    const std::string why = change == NodeLiveness::Change::ended
                                ? "its processes have ended without a message"
                                : fmt::format("not heard from for {} s, so it is down, or its network is",
                                              seconds_text(now - nodes_[node].heard()));
    out.push_back({Finding::Kind::lost, known.ranks.front(),
                   fmt::format("node {} ({}) is lost: {}; last in {}", known.name, ranks_text(known.ranks, names_.mesh),
                               why, ranks_[index(*behind)].text(names_))});
    break;  // the run ends with the first lost node
  }
  if (!unreachable.empty())
    out.push_back({Finding::Kind::unknown, first,
                   fmt::format("{} never reached rank 0 on {} over the network, so its loss would not be noticed: name "
                               "the network of the nodes with control.interface",
                               fmt::join(unreachable, ", "), map_.of(0).name)});
  return out;
}

// One sentence for all nodes that came back together, because then it was rank 0 that was cut off.
std::optional<Watch::Finding> Watch::find_returned() {
  std::vector<std::string> names;
  double longest = 0;
  int first = -1;
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    const double silence = nodes_[node].take_silence();
    if (silence == 0 || static_cast<int>(node) == map_.node_of[0]) continue;  // rank 0's own node needs no network
    const Node& known = map_.nodes[node];
    names.push_back(fmt::format("{} ({})", known.name, ranks_text(known.ranks)));
    longest = std::max(longest, silence);
    if (first < 0) first = known.ranks.front();
  }
  if (names.empty()) return std::nullopt;
  return Finding{
      Finding::Kind::recovered, first,
      fmt::format("{} {} heard from again after a silence of {} s; the run continues", fmt::join(names, ", "),
                  names.size() == 1 ? "is" : "are", seconds_text(std::floor(longest)))};
}

// Reports of ranks on other nodes are outdated or were never received.
bool Watch::is_watched(const RankView& rank) const {
  return nodes_[index(map_.node_of[index(rank.rank)])].is_known();
}

// How long the rank has been in its place, and the time after which that is too long.
Watch::InPlace Watch::in_place(const RankView& rank, double now) const {
  const double since_report = now - reported_[index(rank.rank)];
  if (rank.pid != 0 && rank.beat_age >= kStopped) return {rank.beat_age + since_report, stall_limit_, true};
  if (rank.phase != runtime::Phase::training) return {now - still_[index(rank.rank)].since, stall_limit_, false};
  const int lane = rank.main_lane(names_);
  // A device's lanes do not report task times, and no lane runs while the whole step is on the device. Then the limit
  // depends on the step's own time.
  double typical = rank.typical_step;
  if (lane >= 0 && rank.lanes[index(lane)].place.running && rank.lanes[index(lane)].typical > 0)
    typical = rank.lanes[index(lane)].typical;
  return {rank.age(lane) + since_report, std::max(stall_limit_, kMedians * typical), false};
}

// Names the other ranks that have been in their place for at least half as long, because they began to wait a little
// later. Ranks in a group with the found rank wait for it in their task; the rest wait for those ranks.
std::string Watch::waiting_text(const Stalled& found, double now) const {
  std::vector<int> near;
  int all = 0, task = -1;
  for (const RankView& rank : ranks_) {
    if (rank.rank == found.rank || !is_watched(rank) || in_place(rank, now).age < found.age / 2) continue;
    ++all;
    const int lane = rank.phase == runtime::Phase::training ? rank.main_lane(names_) : -1;
    if (lane < 0 || !rank.lanes[index(lane)].place.running) continue;
    const int waits_in = rank.lanes[index(lane)].place.task;
    const std::vector<int>* group = names_.group(waits_in, rank.rank);
    if (!group || !std::ranges::binary_search(*group, found.rank) || (task >= 0 && waits_in != task)) continue;
    task = waits_in;
    near.push_back(rank.rank);
  }
  if (all == 0) return "";
  const auto count = [](std::size_t n, const char* of_one, const char* of_many) {
    return n == 1 ? std::string(of_one) : fmt::format("{} {}", n, of_many);
  };
  if (near.empty())
    return fmt::format("; {} for it", count(static_cast<std::size_t>(all), "one rank waits", "ranks wait"));
  const std::size_t others = static_cast<std::size_t>(all) - near.size();
  return fmt::format("; {} {} for it in '{}' (group of {}){}", ranks_text(near), near.size() == 1 ? "waits" : "wait",
                     names_.text(task, near[0]), ranks_text(*names_.group(task, near[0])),
                     others == 0 ? "" : fmt::format(", and {} for them", count(others, "one more rank", "more ranks")));
}

std::optional<Watch::Stalled> Watch::stalled_rank(double now) const {
  std::vector<Stalled> stalled;
  for (const RankView& rank : ranks_) {
    if (!is_watched(rank)) continue;
    if (const InPlace place = in_place(rank, now); place.is_stalled())
      stalled.push_back({rank.rank, place.age, place.stopped});
  }
  if (stalled.empty()) return std::nullopt;
  const auto oldest = [](const Stalled& a, const Stalled& b) { return a.age < b.age; };
  const auto among = [&](auto&& fits) -> std::optional<Stalled> {
    std::optional<Stalled> found;
    for (const Stalled& s : stalled)
      if (fits(s) && (!found || oldest(*found, s))) found = s;
    return found;
  };
  if (const auto found = among([](const Stalled& s) { return s.stopped; })) return found;
  // A rank in a task that involves no other rank.
  const auto busy = [&](const Stalled& s) {
    const RankView& rank = ranks_[index(s.rank)];
    if (rank.phase != runtime::Phase::training) return false;
    const int lane = rank.main_lane(names_);
    return lane >= 0 && lane != static_cast<int>(runtime::LaneId::host) && rank.lanes[index(lane)].place.running &&
           !names_.collective(rank.lanes[index(lane)].place.task, s.rank);
  };
  if (const auto found = among(busy)) return found;
  // Otherwise it is the rank with the least progress, which has not yet reached the place where the others wait.
  const auto progress = [&](int rank) {
    const RankView& r = ranks_[index(rank)];
    std::int64_t step = 0;
    int task = 0;
    for (const runtime::LaneId lane : {runtime::LaneId::gather, runtime::LaneId::reduce}) {
      const runtime::LanePlace& place = r.lanes[static_cast<std::size_t>(lane)].place;
      step += place.step;
      // A finished task counts as halfway between itself and the next running one.
      task += 2 * (place.task + 1) + (place.running ? 0 : 1);
    }
    return std::tuple(r.step, stage_of(r), step, task);
  };
  auto least = progress(stalled.front().rank), most = least;
  for (const RankView& rank : ranks_) {
    if (!is_watched(rank)) continue;
    least = std::min(least, progress(rank.rank));
    most = std::max(most, progress(rank.rank));
  }
  if (least == most) return *std::max_element(stalled.begin(), stalled.end(), oldest);
  if (const auto found = among([&](const Stalled& s) { return progress(s.rank) == least; })) return found;
  return std::nullopt;  // the rank with the least progress still advances
}

std::vector<Watch::Finding> Watch::look(double now) {
  std::vector<Finding> out = find_missed(now);
  if (auto returned = find_returned()) out.push_back(std::move(*returned));
  const auto all_reported = [&] {  // a silent node reports nothing about its ranks
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [&](const NodeLiveness& node) { return !node.is_known() || now - node.heard() < kStopped; });
  };
  if (!all_reported()) return out;
  const std::optional<Stalled> found = stalled_rank(now);
  for (std::size_t rank = 0; rank < still_.size(); ++rank) {
    if (still_[rank].warned.empty() || (found && found->rank == static_cast<int>(rank))) continue;
    if (in_place(ranks_[rank], now).is_stalled()) continue;
    still_[rank].warned.clear();
    out.push_back({Finding::Kind::recovered, static_cast<int>(rank),
                   fmt::format("{} on {} continues: it is in {}", names_.mesh.name_of(static_cast<int>(rank)),
                               map_.of(static_cast<int>(rank)).name, ranks_[rank].text(names_))});
  }
  if (!found) return out;
  const RankView& rank = ranks_[index(found->rank)];
  const std::string place = rank.text(names_);
  const std::string who = fmt::format("{} on {}", names_.mesh.name_of(rank.rank), map_.of(rank.rank).name);
  const std::string others = waiting_text(*found, now);
  const std::string stopped = found->stopped ? " (its process does not run)" : "";
  const std::string why =
      fmt::format("{} has been in {} for {} s{}{}", who, place, seconds_text(std::floor(found->age)), stopped, others);
  if (limits_.stuck_after > 0 && found->age >= limits_.stuck_after) {
    out.push_back({Finding::Kind::stuck, rank.rank, why});
  } else if (std::string& warned = still_[index(rank.rank)].warned;
             limits_.warn_after > 0 && found->age >= limits_.warn_after && warned != place) {
    warned = place;
    out.push_back({Finding::Kind::warning, rank.rank, why});
  }
  return out;
}

double Watch::median_compute() const {
  std::vector<double> times;
  for (const RankView& rank : ranks_)
    if (rank.compute > 0) times.push_back(rank.compute);
  return times.empty() ? 0 : median_of(std::move(times));
}

int Watch::slowest() const {
  const double median = median_compute();
  const auto most = std::max_element(ranks_.begin(), ranks_.end(),
                                     [](const RankView& a, const RankView& b) { return a.compute < b.compute; });
  return ranks_.size() > 1 && median > 0 && most->compute > 1.05 * median ? most->rank : -1;
}

}  // namespace strata::launcher::control
