#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/index.h"
#include "runtime/plan/proof/cells.h"
#include "runtime/plan/proof/proof.h"

namespace strata::runtime {
namespace {

constexpr int kNone = -1;

std::string describe(const StepPlan& plan, int t) {
  const Task& task = plan.tasks[index(t)];
  return fmt::format("task {} ({} of unit {}, lane {})", t, traits_of(task.kind).name, task.unit,
                     kLaneNames[index(task.lane)]);
}

// True if a lane's work can address a tier. On the CPU the issuing thread also addresses the device's memory.
bool reaches(const StepPlan& plan, LaneId lane, Tier tier) {
  switch (lane) {
    case LaneId::upload:
    case LaneId::download:
      return tier != Tier::nvme;
    case LaneId::disk_read:
    case LaneId::disk_write:
      return tier != Tier::device;
    case LaneId::host_compute:
      return tier == Tier::host;
    case LaneId::checkpoint:
      return true;
    case LaneId::host:
      return tier == Tier::host || (tier == Tier::device && plan.device.kind == device::Kind::cpu);
    default:
      return tier == Tier::device;
  }
}

std::optional<std::string> find_misplaced(const StepPlan& plan, const std::array<std::size_t, kTiers>& capacity) {
  for (const Buffer& b : plan.buffers)
    if (b.offset + b.bytes > capacity[index(b.tier)])
      return fmt::format("buffer \"{}\" ends at {}, past the {} bytes of tier {}", b.name, b.offset + b.bytes,
                         capacity[index(b.tier)], kTierNames[index(b.tier)]);
  // A buffer that lives from step to step shares its memory with no other.
  std::vector<const Buffer*> by_offset;
  for (const Buffer& b : plan.buffers) by_offset.push_back(&b);
  std::sort(by_offset.begin(), by_offset.end(), [](const Buffer* a, const Buffer* b) {
    return a->tier != b->tier ? a->tier < b->tier : a->offset < b->offset;
  });
  const Buffer* last = nullptr;     // the buffer of the tier that ends last
  const Buffer* lasting = nullptr;  // the same among buffers that live from step to step
  for (const Buffer* b : by_offset) {
    if (last && last->tier != b->tier) last = lasting = nullptr;
    const Buffer* const under = b->persistent ? last : lasting;
    if (under && b->bytes > 0 && b->offset < under->offset + under->bytes)
      return fmt::format("buffers \"{}\" and \"{}\" overlap, and one of them lives from step to step", under->name,
                         b->name);
    const auto later = [&](const Buffer* other) {
      return !other || b->offset + b->bytes > other->offset + other->bytes;
    };
    if (later(last)) last = b;
    if (b->persistent && later(lasting)) lasting = b;
  }
  for (int t = 0; t < static_cast<int>(plan.tasks.size()); ++t) {
    const Task& task = plan.tasks[index(t)];
    for (const int wait : task.waits)
      if (wait < 0 || wait >= static_cast<int>(plan.tasks.size()) || wait == t)
        return fmt::format("{} waits for task {}, which is not another task of the plan", describe(plan, t), wait);
    for (const Use& use : task.uses)
      if (const Buffer& buffer = plan.buffers[index(use.buffer)]; !reaches(plan, task.lane, buffer.tier))
        return fmt::format("{} uses \"{}\" of tier {}, which its lane cannot address", describe(plan, t), buffer.name,
                           kTierNames[index(buffer.tier)]);
  }
  return std::nullopt;
}

// The values of When whose tasks run in a step, as bits.
using WhenSet = unsigned;
constexpr WhenSet bit(When when) {
  return 1u << static_cast<unsigned>(when);
}

// A sequence of steps in which every kind follows every kind that may precede it in a run. F: no pending update, as in
// the first step or after one that left none. P: a pending update and the step. D: a drain, the pending update alone. F
// and P may also begin a checkpoint, after a drain or not. C only reads the last checkpoint's state.
std::vector<WhenSet> steps_of(const StepPlan& plan) {
  constexpr WhenSet kF = bit(When::always), kD = bit(When::pending), kP = kF | kD, kC = bit(When::checkpoint);
  WhenSet present = 0;
  for (const Task& task : plan.tasks) present |= bit(task.when);
  const bool pending = present & kD, checkpoint = present & kC;
  if (pending && checkpoint) return {kF, kP, kP, kP | kC, kP, kF, kF | kC, kP, kD, kF | kC, kF | kC, kP, kD, kC};
  if (pending) return {kF, kP, kP, kF, kF, kP, kD, kF};
  if (checkpoint) return {kF, kF, kF | kC, kF | kC, kF, kC};
  return {kF, kF};
}

// Runs consecutive steps, with tasks in issue order, and tracks for each cell of memory its contents and the runs that
// touched it last.
class Sweep {
 public:
  explicit Sweep(const StepPlan& plan)
      : plan_(plan), cells_(plan), memory_(index(cells_.size())), tasks_(plan.tasks.size()) {
    for (const Task& task : plan.tasks) {
      first_use_.push_back(static_cast<int>(uses_.size()));
      for (const Use& use : task.uses) {
        const Buffer& buffer = plan.buffers[index(use.buffer)];
        uses_.push_back({use.buffer, buffer.persistent, cells_.of(buffer.tier, touched_by(use, buffer)), use.access});
      }
    }
    first_use_.push_back(static_cast<int>(uses_.size()));
    fill_at_start();
    for (auto& clock : lanes_) clock.fill(kNone);
    issued_.fill(kNone);
  }

  std::optional<std::string> step(WhenSet set) {
    ++step_;
    // Tasks that run alone, without a step, are issued after everything before them has ended, and are waited for.
    const bool alone = !(set & bit(When::always));
    if (alone) synchronize();
    for (int t = 0; t < static_cast<int>(plan_.tasks.size()); ++t)
      if (set & bit(plan_.tasks[index(t)].when))
        if (auto violation = run(t)) return violation;
    if (alone) synchronize();
    return std::nullopt;
  }

 private:
  // For each lane the newest run that has certainly ended (a vector clock). Runs are numbered in issue order.
  using Clock = std::array<int, kLanes>;
  static void merge(Clock& into, const Clock& from) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) into[lane] = std::max(into[lane], from[lane]);
  }
  struct Touch {
    int buffer;
    bool lasting;  // the buffer lives from step to step; otherwise its contents are valid in one step only
    Cells::Range cells;
    Access access;
  };
  // The source of copied bytes: a buffer, the offset in its tier, and the run and step that copied them.
  struct Origin {
    int buffer = kNone, run = kNone, step = kNone;
    std::size_t begin = 0;
  };
  struct Cell {
    int buffer = kNone;                 // the buffer whose contents it holds
    int written = kNone, step = kNone;  // the run that wrote it last, and its step
    LaneId lane = LaneId::compute;      // the lane of that run
    Clock read = all_none();            // by lane: the newest run that has read it since then
    int origin = kNone;                 // index of the contents' origin, if they are a copy
  };
  struct Newest {  // the newest run of a task
    int run = kNone;
    Clock ended;  // what has ended once it has
  };
  static constexpr Clock all_none() {
    Clock clock{};
    for (int& run : clock) run = kNone;
    return clock;
  }

  void synchronize() {
    for (const Clock& clock : lanes_) merge(issued_, clock);
  }

  void fill_at_start() {
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const Buffer& buffer = plan_.buffers[b];
      if (!buffer.filled) continue;
      const auto [first, last] = cells_.of(buffer.tier, {buffer.offset, buffer.offset + buffer.bytes});
      for (int cell = first; cell < last; ++cell) memory_[index(cell)].buffer = static_cast<int>(b);
    }
  }

  std::optional<std::string> run(int t) {
    const Task& task = plan_.tasks[index(t)];
    Clock clock = lanes_[index(task.lane)];
    merge(clock, issued_);
    for (const int wait : task.waits)
      if (tasks_[index(wait)].run != kNone) merge(clock, tasks_[index(wait)].ended);
    const int number = static_cast<int>(of_run_.size());
    of_run_.push_back({t, step_});
    for (int u = first_use_[index(t)]; u < first_use_[index(t) + 1]; ++u) {
      const Touch& touch = uses_[index(u)];
      for (int at = touch.cells.first; at < touch.cells.last; ++at) {
        Cell& cell = memory_[index(at)];
        const bool plain =
            cell.buffer == touch.buffer &&
            (touch.access == Access::write || (cell.origin == kNone && (touch.lasting || cell.step == step_)));
        if (!plain)
          if (auto violation = contents(t, number, touch, at)) return violation;
        if (cell.written > clock[index(cell.lane)] && cell.written != number)
          return at_once(t, touch, cell, cell.written);
        if (touch.access == Access::read) {
          cell.read[index(task.lane)] = number;
          continue;
        }
        for (std::size_t lane = 0; lane < kLanes; ++lane)
          if (cell.read[lane] > clock[lane] && cell.read[lane] != number)
            return at_once(t, touch, cell, cell.read[lane]);
        const int origin = touch.access == Access::update ? cell.origin : kNone;
        cell = {touch.buffer, number, step_, task.lane, all_none(), origin};
      }
    }
    note_copies(number);
    clock[index(task.lane)] = number;
    tasks_[index(t)] = {number, clock};
    lanes_[index(task.lane)] = clock;
    if (task.lane == LaneId::host) merge(issued_, clock);
    return std::nullopt;
  }

  // Checks the contents that a use finds in a cell if tasks run in the order of the list.
  std::optional<std::string> contents(int t, int number, const Touch& touch, int at) const {
    const Cell& cell = memory_[index(at)];
    const std::string& name = plan_.buffers[index(touch.buffer)].name;
    if (cell.buffer != touch.buffer && cell.buffer != kNone &&
        (cell.written == number || cell.read[index(plan_.tasks[index(t)].lane)] == number))
      return fmt::format("{} uses \"{}\" and \"{}\", which overlap", describe(plan_, t), name,
                         plan_.buffers[index(cell.buffer)].name);
    if (touch.access == Access::write) return std::nullopt;
    if (cell.buffer != touch.buffer || (!touch.lasting && cell.step != step_))
      return fmt::format("{} reads \"{}\", which {}", describe(plan_, t), name,
                         cell.buffer == touch.buffer || cell.buffer == kNone ? "nothing has written"
                                                                             : "another buffer has overwritten");
    if (cell.origin == kNone) return std::nullopt;
    const Origin& origin = origins_[index(cell.origin)];
    const Buffer& source = plan_.buffers[index(origin.buffer)];
    if (!source.persistent && origin.step != step_) return std::nullopt;
    const std::size_t bytes = cells_.bytes_of(plan_.buffers[index(touch.buffer)].tier, at);
    const auto [first, last] = cells_.touching(source.tier, {origin.begin, origin.begin + bytes});
    for (int p = first; p < last; ++p)
      if (const Cell& there = memory_[index(p)]; there.buffer == origin.buffer && there.written > origin.run)
        return fmt::format("{} reads \"{}\", a copy of \"{}\" that {} has changed since", describe(plan_, t), name,
                           source.name, describe(plan_, of_run_[index(there.written)].task));
    return std::nullopt;
  }

  std::string at_once(int t, const Touch& touch, const Cell& cell, int other) const {
    const auto [task, step] = of_run_[index(other)];
    return fmt::format("{} and {}{} may run at the same time and share memory (\"{}\", \"{}\")", describe(plan_, t),
                       describe(plan_, task), step == step_ ? "" : " of an earlier step",
                       plan_.buffers[index(touch.buffer)].name,
                       cell.buffer == kNone ? "" : plan_.buffers[index(cell.buffer)].name);
  }

  // Records the origin of every cell that the run has copied.
  void note_copies(int number) {
    const int t = of_run_[index(number)].task;
    const Task& task = plan_.tasks[index(t)];
    for (std::size_t i = 0; i < task.uses.size(); ++i) {
      const Use& to = task.uses[i];
      if (to.copies < 0) continue;
      const Use& from = task.uses[index(to.copies)];
      if (from.own || to.own) continue;
      const Buffer &source = plan_.buffers[index(from.buffer)], &target = plan_.buffers[index(to.buffer)];
      const std::size_t there = touched_by(from, source).begin, here = touched_by(to, target).begin;
      const auto [first, last] = uses_[index(first_use_[index(t)]) + i].cells;
      for (int p = first; p < last; ++p) {
        const std::size_t begin = cells_.begin_of(target.tier, p), bytes = cells_.bytes_of(target.tier, p);
        const Origin origin = root_of({from.buffer, number, step_, there + begin - here}, bytes, to.buffer);
        memory_[index(p)].origin = add_origin(origin);
        note_return(origin, {to.buffer, number, step_, begin}, bytes);
      }
    }
  }
  // A copy of an unchanged copy counts as a copy of the first source.
  Origin root_of(const Origin& origin, std::size_t bytes, int target) const {
    const Tier tier = plan_.buffers[index(origin.buffer)].tier;
    const auto [first, last] = cells_.touching(tier, {origin.begin, origin.begin + bytes});
    const Cell& cell = memory_[index(first)];
    if (last - first != 1 || cell.origin == kNone) return origin;
    const Origin& root = origins_[index(cell.origin)];
    if (root.run != cell.written || root.buffer == target) return origin;
    return {root.buffer, origin.run, root.step, root.begin + origin.begin - cells_.begin_of(tier, first)};
  }
  // Bytes that are copied back to their origin make the two equal again, so the copy is up to date.
  void note_return(const Origin& origin, const Origin& target, std::size_t bytes) {
    const Tier tier = plan_.buffers[index(origin.buffer)].tier;
    const auto [first, last] = cells_.touching(tier, {origin.begin, origin.begin + bytes});
    for (int p = first; p < last; ++p) {
      Cell& cell = memory_[index(p)];
      if (cell.buffer != origin.buffer || cell.origin == kNone) continue;
      const std::size_t back = target.begin + cells_.begin_of(tier, p) - origin.begin;
      if (const Origin& known = origins_[index(cell.origin)]; known.buffer == target.buffer && known.begin == back)
        cell.origin = add_origin({target.buffer, target.run, target.step, back});
    }
  }
  int add_origin(const Origin& origin) {
    origins_.push_back(origin);
    return static_cast<int>(origins_.size()) - 1;
  }

  const StepPlan& plan_;
  const Cells cells_;
  std::vector<Touch> uses_;     // the uses of all tasks, in the order of the list
  std::vector<int> first_use_;  // by task
  std::vector<Cell> memory_;
  std::vector<Origin> origins_;
  std::vector<Newest> tasks_;
  std::array<Clock, kLanes> lanes_;  // what has ended once the newest run of each lane has
  Clock issued_;                     // the runs that the issuing thread has waited for
  struct Run {
    int task, step;
  };
  std::vector<Run> of_run_;
  int step_ = 0;
};

}  // namespace

std::optional<std::string> find_violation(const StepPlan& plan, const std::array<std::size_t, kTiers>& capacity) {
  if (auto misplaced = find_misplaced(plan, capacity)) return misplaced;
  Sweep sweep(plan);
  for (const WhenSet set : steps_of(plan))
    if (auto violation = sweep.step(set)) return violation;
  if (auto violation = find_unsummed(plan)) return violation;
  return find_miscounted(plan);
}

}  // namespace strata::runtime
