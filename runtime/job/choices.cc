#include "runtime/job/choices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "base/index.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/requirements.h"

namespace strata::runtime {
namespace {

// A stage's memory grows with its units' parameters, their activations, and the largest unit.
struct Load {
  double parameters = 0, saved = 0, largest = 0;

  bool covers(const Load& other) const {
    return parameters >= other.parameters && saved >= other.saved && largest >= other.largest;
  }
};

Load load_of(const models::Unit& unit) {
  double size = 0;
  for (const models::PoolKind pool : {models::PoolKind::trained, models::PoolKind::frozen, models::PoolKind::quantised})
    size += static_cast<double>(unit.size(pool));
  const models::UnitBytes bytes = unit.bytes();
  return {
      size, static_cast<double>(bytes.saved),
      std::max({size, static_cast<double>(bytes.forward_workspace), static_cast<double>(bytes.backward_workspace)})};
}

// Indexed by first and last unit.
using Loads = std::vector<std::vector<Load>>;
Loads loads_of(const models::Model& model) {
  const std::size_t units = model.units.size();
  Loads out(units, std::vector<Load>(units));
  for (std::size_t first = 0; first < units; ++first) {
    Load sum;
    for (std::size_t last = first; last < units; ++last) {
      const Load one = load_of(*model.units[last]);
      sum = {sum.parameters + one.parameters, sum.saved + one.saved, std::max(sum.largest, one.largest)};
      out[first][last] = sum;
    }
  }
  return out;
}

// The maximum number of unit calls in a step that is planned in full: this takes a few milliseconds.
constexpr std::size_t kShortStep = 2048;

// The number of splits that are tried before the search gives up: for most models the first split fits, or none does.
constexpr int kMaxSplits = 64;

// The maximum number of unit calls in all simulated splits together, and of simulated splits. A new split must gain at
// least kLeastGain, because the simulator hardly resolves less.
constexpr std::size_t kSimulatedCalls = 16384, kMaxSimulated = 48;
constexpr double kLeastGain = 0.01;

// `split` with one unit less in piece `from` and one more in piece `to`; the pieces between shift by a unit. Empty if
// `from` has only one unit.
std::vector<UnitRange> with_unit_moved(std::vector<UnitRange> split, std::size_t from, std::size_t to) {
  if (split[from].first == split[from].last) return {};
  for (std::size_t cut = std::min(from, to); cut < std::max(from, to); ++cut) {
    const int by = from < to ? -1 : 1;
    split[cut].last += by;
    split[cut + 1].first += by;
  }
  return split;
}

// A stage, and the first and the last unit of each of its pieces.
std::vector<int> stage_key(std::size_t stage, std::span<const UnitRange> split, std::size_t stages) {
  std::vector<int> key = {static_cast<int>(stage)};
  for (std::size_t piece = stage; piece < split.size(); piece += stages)
    key.insert(key.end(), {split[piece].first, split[piece].last});
  return key;
}

// The simulated step of a split's stages.
struct SimulatedSplit {
  double step_s = 0;
  std::vector<double> idle;  // share of the step, by stage
};

// Pairs of pieces: a unit may move from the first to the second. Moves from busy stages to idle ones come first,
// because they shorten a step most. If stages have several pieces, moves between the pieces of a stage and from idle
// stages to busy ones follow, because the waits of other stages also depend on which piece of a stage has a unit. Of
// the pieces of two stages, the closest come first, so that few others shift.
std::vector<std::pair<std::size_t, std::size_t>> moves_of(const std::vector<double>& idle, std::size_t pieces) {
  const std::size_t stages = idle.size();
  std::vector<std::size_t> by_idle(stages);
  std::iota(by_idle.begin(), by_idle.end(), std::size_t{0});
  std::ranges::stable_sort(by_idle, {}, [&](std::size_t stage) { return idle[stage]; });
  std::vector<std::pair<std::size_t, std::size_t>> moves;
  const auto add = [&](std::size_t from_stage, std::size_t to_stage) {
    const auto begin = static_cast<std::ptrdiff_t>(moves.size());
    for (std::size_t from = from_stage; from < pieces; from += stages)
      for (std::size_t to = to_stage; to < pieces; to += stages)
        if (from != to) moves.emplace_back(from, to);
    const auto shifted = [](const auto& move) {
      return std::max(move.first, move.second) - std::min(move.first, move.second);
    };
    std::ranges::stable_sort(moves.begin() + begin, moves.end(), {}, shifted);
  };
  for (std::size_t most_idle = stages; most_idle-- > 1;)
    for (std::size_t busier = 0; busier < most_idle; ++busier) add(by_idle[busier], by_idle[most_idle]);
  if (pieces == stages) return moves;
  for (const std::size_t stage : by_idle) add(stage, stage);
  for (std::size_t most_idle = stages; most_idle-- > 1;)
    for (std::size_t busier = 0; busier < most_idle; ++busier) add(by_idle[most_idle], by_idle[busier]);
  return moves;
}

}  // namespace

Recipe with_few_micro_batches(const Recipe& recipe, int ranks, int least) {
  const int run = multiple_of_micro_batches(recipe, ranks);
  Recipe few = recipe;
  few.training.global_batch_size.reset();
  few.training.gradient_accumulation_steps = std::min((least + run - 1) / run * run, recipe.accumulation_steps(ranks));
  return few;
}

StageTimes::StageTimes(std::size_t units) {
  before_.fill(std::vector<double>(units + 1));
}

void StageTimes::add(const StepPlan& plan, const MachineProfile& machine, int micro_batches) {
  std::array<std::vector<double>, kLanes> own;
  own.fill(std::vector<double>(before_[0].size()));
  for (const Task& task : plan.tasks) {
    // The boundary belongs to no unit, and messages are where stages wait for each other.
    if (task.boundary || is_message(task.kind)) continue;
    const BoundSeconds seconds = seconds_of(task, machine);
    const double times = task.micro_batch < 0 ? 1 : static_cast<double>(micro_batches) / plan.accumulation;
    own[static_cast<std::size_t>(task.lane)][static_cast<std::size_t>(task.unit) + 1] +=
        times * std::accumulate(seconds.begin(), seconds.end(), 0.0);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    double sum = 0;
    for (std::size_t unit = 0; unit < own[lane].size(); ++unit) before_[lane][unit] += sum += own[lane][unit];
  }
}

double StageTimes::of(const UnitRange& units) const {
  double most = 0;
  for (const std::vector<double>& lane : before_)
    most = std::max(most, lane[static_cast<std::size_t>(units.last) + 1] - lane[static_cast<std::size_t>(units.first)]);
  return most;
}

std::vector<UnitRange> balanced_split(const models::Model& model, int stages, int chunks, const PieceTime& time,
                                      const StageExcess& excess) {
  const auto units = static_cast<int>(model.units.size());
  const Loads loads = loads_of(model);
  const auto load_of_range = [&](const UnitRange& range) -> const Load& {
    return loads[static_cast<std::size_t>(range.first)][static_cast<std::size_t>(range.last)];
  };
  std::vector<std::vector<Load>> too_much(static_cast<std::size_t>(stages * chunks));  // by piece
  const auto may_have = [&](int piece, const UnitRange& range) {
    return std::ranges::none_of(too_much[static_cast<std::size_t>(piece)],
                                [&](const Load& known) { return load_of_range(range).covers(known); });
  };
  std::map<std::vector<int>, std::size_t> known;  // excess, by stage_key
  std::vector<UnitRange> nearest;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (int tried = 0; tried < kMaxSplits; ++tried) {
    std::vector<UnitRange> split = fastest_split(units, stages, chunks, time, may_have);
    if (split.empty()) break;
    std::size_t most = 0;
    for (int stage = 0; stage < stages; ++stage) {
      int largest = stage;  // piece
      for (int piece = stage; piece < stages * chunks; piece += stages)
        if (load_of_range(split[index(piece)]).parameters > load_of_range(split[index(largest)]).parameters)
          largest = piece;
      const auto [it, is_new] = known.try_emplace(stage_key(index(stage), split, index(stages)));
      if (is_new) it->second = excess(stage, split);
      if (it->second == 0) continue;
      most = std::max(most, it->second);
      too_much[index(largest)].push_back(load_of_range(split[index(largest)]));
    }
    if (most == 0) return split;
    if (most < least) nearest = std::move(split);
    least = std::min(least, most);
  }
  return nearest;
}

std::vector<UnitRange> improved_split(std::vector<UnitRange> split, int stages, std::size_t most,
                                      const PlanStage& plan_stage) {
  std::map<std::vector<int>, StagePlan> plans;  // by stage_key
  // Returns nothing if a stage does not fit.
  const auto simulated = [&](const std::vector<UnitRange>& of) -> std::optional<SimulatedSplit> {
    std::vector<const StepPlan*> all;
    for (int stage = 0; stage < stages; ++stage) {
      const std::vector<int> key = stage_key(index(stage), of, index(stages));
      auto it = plans.find(key);
      if (it == plans.end()) it = plans.emplace(key, plan_stage(stage, of)).first;
      if (it->second.excess > 0) return std::nullopt;
      all.push_back(&it->second.plan);
    }
    const auto spans = simulate(all, nominal_profile(*all[0]));
    std::vector<SimulatedStage> ran;
    for (std::size_t stage = 0; stage < all.size(); ++stage) ran.push_back({all[stage], spans[stage]});
    SimulatedSplit out{makespan_s(ran), {}};
    for (const SimulatedStage& stage : ran) out.idle.push_back(idle_share(*stage.plan, stage.spans, 1e3 * out.step_s));
    return out;
  };
  std::optional<SimulatedSplit> best = simulated(split);
  if (!best) return split;
  std::size_t tried = 1;
  for (bool improves = true; improves;) {
    improves = false;
    for (const auto& [from, to] : moves_of(best->idle, split.size())) {
      const std::vector<UnitRange> moved = with_unit_moved(split, from, to);
      if (moved.empty()) continue;
      if (++tried > most) return split;
      std::optional<SimulatedSplit> next = simulated(moved);
      if (!next || next->step_s > (1 - kLeastGain) * best->step_s) continue;
      best = std::move(next);
      split = moved;
      improves = true;
      break;
    }
  }
  return split;
}

ChosenSplit choose_split(
    const Recipe& recipe, const models::Model& model, int ranks, const std::function<StepPlan(const Recipe&)>& whole,
    const std::function<StagePlan(const Recipe&, int stage, const std::vector<UnitRange>&)>& plan_stage) {
  const int stages = recipe.parallel.stages, chunks = static_cast<int>(recipe.parallel.chunks);
  if (!recipe.parallel.split.empty()) return {split_into_pieces(model, stages, chunks, recipe.parallel.split)};
  require_units(model, stages, chunks);
  const int micro_batches = recipe.accumulation_steps(ranks);
  const StepPlan plan = whole(with_few_micro_batches(recipe, ranks, 2));
  StageTimes times(model.units.size());
  times.add(plan, nominal_profile(plan), micro_batches);
  // A stage keeps the activations of at most as many micro-batches as there are stages, or about twice as many with
  // several chunks. So a long step is planned with fewer micro-batches.
  const bool keeps_all = recipe.parallel.schedule == Schedule::all_forward_all_backward;
  const std::size_t calls = static_cast<std::size_t>(micro_batches) * model.units.size();
  const bool is_short = calls <= kShortStep;
  const Recipe few =
      keeps_all || is_short ? recipe : with_few_micro_batches(recipe, ranks, chunks == 1 ? stages + 1 : 4 * stages);
  const auto plan_few = [&](int stage, const std::vector<UnitRange>& split) { return plan_stage(few, stage, split); };
  std::size_t tasks = plan.tasks.size();
  std::vector<UnitRange> balanced = balanced_split(
      model, stages, chunks, [&](const UnitRange& units) { return times.of(units); },
      [&](int stage, const std::vector<UnitRange>& split) {
        const StagePlan planned = plan_few(stage, split);
        tasks += planned.plan.tasks.size();
        return planned.excess;
      });
  if (!is_short) return {std::move(balanced), tasks};
  const std::size_t most = std::min(kMaxSimulated, kSimulatedCalls / calls);
  return {improved_split(std::move(balanced), stages, most, plan_few), tasks};
}

namespace {

// The speedup that a relative growth of memory must bring, and the difference that the simulator hardly resolves.
constexpr double kSpeedPerMemory = 0.5, kNegligible = 0.01;

double bytes_of(const StepPlan& plan) {
  return static_cast<double>(plan.memory[0].peak + plan.memory[1].peak);
}

// True if the extra memory of `more` brings enough speed over `less`.
bool is_worth_it(const StepPlan& more, const StepPlan& less) {
  const double growth = bytes_of(more) / bytes_of(less) - 1;
  const MachineProfile machine = nominal_profile(less);
  const auto seconds = [&](const StepPlan& plan) { return makespan_s(plan, simulate(plan, machine)); };
  const double gain = seconds(less) / seconds(more) - 1;
  const auto moved = [](const StepPlan& p) { return p.comm_bytes.total() + p.io_bytes.total(); };
  if (growth <= kNegligible && std::abs(gain) <= kNegligible) return moved(more) < moved(less);
  return gain >= kSpeedPerMemory * growth && gain > 0;
}

}  // namespace

bool takes_vertical(const OrderedPlan& horizontal, const OrderedPlan& vertical,
                    const std::function<std::size_t()>& device_limit) {
  if (horizontal.fits != vertical.fits) return vertical.fits;
  const bool vertical_is_less = bytes_of(vertical.plan) < bytes_of(horizontal.plan);
  if (!vertical.fits) return vertical_is_less;
  const StepPlan& less = (vertical_is_less ? vertical : horizontal).plan;
  const StepPlan& more = (vertical_is_less ? horizontal : vertical).plan;
  const bool takes_more = is_worth_it(more, less);
  const std::size_t taken = (takes_more ? more : less).memory[0].peak, left = (takes_more ? less : more).memory[0].peak;
  const bool too_much = taken > left && taken > device_limit();
  return vertical_is_less != (takes_more != too_much);
}

std::vector<Recipe> with_less_moved(const Recipe& recipe, int ranks) {
  std::vector<Recipe> out;
  const Recipe::Zero& zero = recipe.zero;
  if (ranks > 1 && zero.stage > 0) --out.emplace_back(recipe).zero.stage;
  for (const auto at :
       {&Recipe::Zero::parameters, &Recipe::Zero::gradients, &Recipe::Zero::optimizer, &Recipe::Zero::activations})
    if (zero.*at != Tier::device)
      out.emplace_back(recipe).zero.*at = zero.*at == Tier::nvme ? Tier::host : Tier::device;
  return out;
}

}  // namespace strata::runtime
