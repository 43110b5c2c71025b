#include "launcher/control/watch/rank_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "runtime/plan/peers.h"

namespace strata::launcher::control {
namespace {

constexpr auto kViewOrder = std::memory_order_relaxed;

double seconds_of(std::int64_t ns) {
  return static_cast<double>(std::max<std::int64_t>(ns, 0)) * 1e-9;
}

// Adds the names of the other stages. One line per task: its lane, whether it is collective, its set of groups, and its
// text.
void exchange_names(TaskNames& names, int stage, comm::World& world) {
  std::string lines;
  if (names.mesh.rank_of(0, 0, stage) == world.rank())
    for (const TaskNames::Name& name : names.stages[0])
      lines += fmt::format("{} {:d} {} {}\n", static_cast<int>(name.lane), name.collective, name.group_set, name.text);
  const std::vector<std::string> all = world.exchange(lines);
  names.stages.assign(static_cast<std::size_t>(names.mesh.stages), {});
  for (int s = 0; s < names.mesh.stages; ++s) {
    std::istringstream from(all[static_cast<std::size_t>(names.mesh.rank_of(0, 0, s))]);
    TaskNames::Name name;
    for (int lane = 0;
         from >> lane >> name.collective >> name.group_set && from.get() && std::getline(from, name.text);) {
      name.lane = static_cast<runtime::LaneId>(lane);
      names.stages[static_cast<std::size_t>(s)].push_back(name);
    }
  }
}

}  // namespace

TaskNames::TaskNames(const runtime::StepPlan& plan, const models::Model& model, comm::World& world) {
  for (std::size_t i = 0; i < runtime::kPeers; ++i) {
    auto& groups = group_sets.emplace_back();
    std::vector<bool> known(static_cast<std::size_t>(plan.ranks()));
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      if (known[static_cast<std::size_t>(rank)]) continue;
      std::vector<int> members = group_of(plan, static_cast<runtime::Peers>(i), rank).members;
      if (members.size() == known.size()) break;
      std::ranges::sort(members);
      for (const int member : members) known[static_cast<std::size_t>(member)] = true;
      groups.push_back(std::move(members));
    }
  }
  std::vector<Name> own;
  for (const runtime::Task& task : plan.tasks) {
    const std::optional<runtime::Peers> peers = runtime::traits_of(task.kind).peers;
    const bool collective = peers.has_value() && plan.ranks() > 1;
    const bool in_group = collective && !group_sets[static_cast<std::size_t>(*peers)].empty();
    own.push_back({name_of(task, model), task.lane, collective, in_group ? static_cast<int>(*peers) : -1});
  }
  stages = {std::move(own)};
  mesh = plan.mesh();
  if (mesh.stages > 1) exchange_names(*this, plan.stage, world);
}

const TaskNames::Name* TaskNames::find(int task, int rank) const {
  const auto& tasks = stages[stages.size() == 1 ? 0 : static_cast<std::size_t>(mesh.at(rank).stage)];
  return task < 0 || static_cast<std::size_t>(task) >= tasks.size() ? nullptr : &tasks[static_cast<std::size_t>(task)];
}

std::string_view TaskNames::text(int task, int rank) const {
  const Name* const name = find(task, rank);
  return name ? std::string_view(name->text) : std::string_view("a task");
}

bool TaskNames::collective(int task, int rank) const {
  const Name* const name = find(task, rank);
  return name && name->collective;
}

const std::vector<int>* TaskNames::group(int task, int rank) const {
  if (!collective(task, rank)) return nullptr;
  const int group_set = find(task, rank)->group_set;
  if (group_set < 0) return nullptr;
  for (const std::vector<int>& group : group_sets[static_cast<std::size_t>(group_set)])
    if (std::ranges::binary_search(group, rank)) return &group;
  return nullptr;
}

int RankView::main_lane(const TaskNames& names) const {
  int best = -1;
  // Of two tasks with the same weight, the longer-running one counts. The host's lane counts less than other running
  // lanes, because it waits for them.
  const auto weight = [&](int lane) {
    const Lane& l = lanes[static_cast<std::size_t>(lane)];
    if (l.place.task < 0) return 0;
    if (!l.place.running) return 1;
    if (lane == static_cast<int>(runtime::LaneId::host)) return 2;
    return names.collective(l.place.task, rank) ? 3 : 4;
  };
  for (int lane = 0; lane < static_cast<int>(runtime::kLanes); ++lane) {
    if (weight(lane) == 0) continue;
    const bool longer =
        best >= 0 && lanes[static_cast<std::size_t>(lane)].age > lanes[static_cast<std::size_t>(best)].age;
    const bool newer =
        best >= 0 && lanes[static_cast<std::size_t>(lane)].age < lanes[static_cast<std::size_t>(best)].age;
    if (best < 0 || weight(lane) > weight(best) ||
        (weight(lane) == weight(best) && (weight(lane) == 1 ? newer : longer)))
      best = lane;
  }
  return best;
}

std::string RankView::text(const TaskNames& names) const {
  const int lane = phase == runtime::Phase::training ? main_lane(names) : -1;
  if (lane < 0) {
    const auto index = static_cast<std::size_t>(phase);
    return fmt::format("'{}'{}", index < runtime::kPhaseNames.size() ? runtime::kPhaseNames[index] : "?",
                       counter > 0 ? fmt::format(" ({} done)", counter) : "");
  }
  const runtime::LanePlace& place = lanes[static_cast<std::size_t>(lane)].place;
  return fmt::format("{}'{}' of step {}", place.running ? "" : "what follows ", names.text(place.task, rank),
                     place.step);
}

pb::RankReport report_of(int rank, const runtime::RankProgress& progress, std::int64_t now) {
  pb::RankReport out;
  out.set_rank(rank);
  out.set_phase(static_cast<std::uint32_t>(progress.phase.load(kViewOrder)));
  out.set_counter(progress.counter.load(kViewOrder));
  const auto age = [&](std::int64_t since) { return since == 0 ? 0 : now - since; };
  out.set_phase_age(age(progress.phase_since.load(kViewOrder)));
  out.set_step(progress.step.load(kViewOrder));
  out.set_compute(progress.compute.load(kViewOrder));
  out.set_beat_age(age(progress.beat.load(kViewOrder)));
  out.set_pid(progress.pid.load(kViewOrder));
  out.set_typical_step(progress.typical.load(kViewOrder));
  for (const auto& lane : progress.lanes) {
    // Read the place first. Otherwise the age of a later place would make this one appear young and prevent a warning.
    out.add_place(lane.place.load(kViewOrder));
    out.add_age(age(lane.since.load(kViewOrder)));
    out.add_typical(lane.typical.load(kViewOrder));
  }
  return out;
}

RankView view_of(const pb::RankReport& report) {
  RankView out;
  out.rank = report.rank();
  out.phase = report.phase() < runtime::kPhaseNames.size() ? static_cast<runtime::Phase>(report.phase())
                                                           : runtime::Phase::starting;
  out.counter = report.counter();
  out.phase_age = seconds_of(report.phase_age());
  out.step = report.step();
  out.compute = seconds_of(report.compute());
  out.beat_age = seconds_of(report.beat_age());
  out.pid = report.pid();
  out.typical_step = seconds_of(report.typical_step());
  const int lanes =
      std::min({static_cast<int>(runtime::kLanes), report.place_size(), report.age_size(), report.typical_size()});
  for (int lane = 0; lane < lanes; ++lane)
    out.lanes[static_cast<std::size_t>(lane)] = {runtime::unpacked(report.place(lane)), seconds_of(report.age(lane)),
                                                 seconds_of(report.typical(lane))};
  return out;
}

}  // namespace strata::launcher::control
