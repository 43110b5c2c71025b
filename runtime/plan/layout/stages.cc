#include "runtime/plan/layout/stages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/index.h"
#include "base/quantity.h"
#include "models/layers/embedding.h"

namespace strata::runtime {

namespace {

// The cut whose slowest piece is the fastest.
std::vector<UnitRange> with_fast_pieces(int units, int pieces, const PieceTime& time, const MayHave& may_have) {
  STRATA_CHECK_LE(pieces, units);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // slowest[s][n]: of the first n units in s + 1 pieces; cut[s][n]: where the last of these pieces begins.
  const auto size = static_cast<std::size_t>(units) + 1;
  std::vector<std::vector<double>> slowest(static_cast<std::size_t>(pieces), std::vector<double>(size, kNever));
  std::vector<std::vector<int>> cut(static_cast<std::size_t>(pieces), std::vector<int>(size));
  for (int s = 0; s < pieces; ++s) {
    const auto at = static_cast<std::size_t>(s);
    for (int n = s + 1; n <= units - (pieces - 1 - s); ++n)
      for (int first = s; first < (s == 0 ? 1 : n); ++first) {
        const UnitRange last{first, n - 1};
        const double before = s == 0 ? 0 : slowest[at - 1][static_cast<std::size_t>(first)];
        if (before >= slowest[at][static_cast<std::size_t>(n)] || (may_have && !may_have(s, last))) continue;
        const double slower = std::max(before, time(last));
        if (slower >= slowest[at][static_cast<std::size_t>(n)]) continue;
        slowest[at][static_cast<std::size_t>(n)] = slower;
        cut[at][static_cast<std::size_t>(n)] = first;
      }
  }
  if (slowest.back().back() == kNever) return {};
  std::vector<UnitRange> out(static_cast<std::size_t>(pieces));
  for (int s = pieces - 1, end = units; s >= 0; --s) {
    const int first = cut[static_cast<std::size_t>(s)][static_cast<std::size_t>(end)];
    out[static_cast<std::size_t>(s)] = {first, end - 1};
    end = first;
  }
  return out;
}

// The maximum number of consecutive cuts that move together, which moves the time of a unit to a stage that is not a
// neighbour.
constexpr std::size_t kMaxMoved = 8;

// The criteria for comparing splits, in this order.
using SplitCost = std::function<std::pair<double, double>(const std::vector<UnitRange>&)>;

// Moves cuts by a unit while that lowers the cost.
void balance_stages(std::vector<UnitRange>& pieces, const SplitCost& cost_of, const MayHave& may_have) {
  const auto allowed = [&](std::size_t piece, const UnitRange& range) {
    return range.first <= range.last && (!may_have || may_have(static_cast<int>(piece), range));
  };
  auto cost = cost_of(pieces);
  for (bool better = true; better;) {
    better = false;
    for (std::size_t first = 1; first < pieces.size(); ++first)
      for (std::size_t end = first + 1; end <= std::min(pieces.size(), first + kMaxMoved); ++end)
        for (const int by : {-1, 1}) {
          std::vector<UnitRange> moved = pieces;
          for (std::size_t cut = first; cut < end; ++cut) {
            moved[cut - 1].last += by;
            moved[cut].first += by;
          }
          bool may = true;
          for (std::size_t piece = first - 1; piece < end; ++piece) may = may && allowed(piece, moved[piece]);
          if (!may) continue;
          if (const auto moved_cost = cost_of(moved); moved_cost < cost) {
            cost = moved_cost;
            pieces = std::move(moved);
            better = true;
          }
        }
  }
}

}  // namespace

bool StageUnits::has(int unit) const {
  return std::ranges::any_of(ranges, [&](const UnitRange& range) { return range.has(unit); });
}

std::vector<int> StageUnits::all() const {
  std::vector<int> out;
  for (const UnitRange& range : ranges)
    for (int unit = range.first; unit <= range.last; ++unit) out.push_back(unit);
  return out;
}

StageUnits units_of_stage(std::span<const UnitRange> pieces, int stages, int stage) {
  StageUnits out;
  for (std::size_t piece = static_cast<std::size_t>(stage); piece < pieces.size();
       piece += static_cast<std::size_t>(stages))
    out.ranges.push_back(pieces[piece]);
  return out;
}

namespace {

// The unit that is block 0: those before it are the embedding and, in some encoders, its norm.
int first_block(const models::Model& model) {
  return model.units.size() > 1 && models::is_embedding_norm(*model.units[1]) ? 2 : 1;
}

}  // namespace

void require_units(const models::Model& model, int stages, int chunks) {
  const auto units = static_cast<int>(model.units.size());
  if (stages * chunks <= units) return;
  const int first = first_block(model);
  const std::string all =
      fmt::format("{} units (embedding, {}{} blocks, head)", units, first > 1 ? "its norm, " : "", units - 1 - first);
  if (chunks > 1)
    fail(Exit::usage,
         "parallel.stages = {} with parallel.chunks = {} makes {} pieces, but this model has only {}: set at most {} "
         "pieces",
         stages, chunks, stages * chunks, all, units);
  fail(Exit::usage, "parallel.stages = {}, but this model has only {}: set at most {} stages", stages, all, units);
}

double slowest_stage(std::span<const UnitRange> pieces, int stages, const PieceTime& time) {
  double most = 0;
  for (std::size_t stage = 0; stage < std::min(pieces.size(), index(stages)); ++stage) {
    double sum = 0;
    for (std::size_t piece = stage; piece < pieces.size(); piece += index(stages)) sum += time(pieces[piece]);
    most = std::max(most, sum);
  }
  return most;
}

std::vector<UnitRange> split_into_pieces(const models::Model& model, int stages, int chunks,
                                         std::span<const std::int64_t> blocks) {
  require_units(model, stages, chunks);
  const int pieces = stages * chunks;
  const int before = first_block(model), all = static_cast<int>(model.units.size()) - 1 - before;
  const std::string of = chunks == 1 ? counted(stages, "stage")
                                     : fmt::format("{} of {}", counted(stages, "stage"), counted(chunks, "chunk"));
  const std::int64_t sum = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  if (static_cast<int>(blocks.size()) != pieces || sum != all)
    fail(Exit::usage,
         "parallel.split = [{}] has {} for {} and {} blocks for the model's {}: give {} that add up to {}, or \"auto\"",
         fmt::join(blocks, ", "), counted(blocks.size(), "number"), of, sum, all, counted(pieces, "number"), all);
  std::vector<UnitRange> out;
  int first = 0;
  for (int p = 0; p < pieces; ++p) {
    const int own =
        static_cast<int>(blocks[static_cast<std::size_t>(p)]) + (p == 0 ? before : 0) + (p + 1 == pieces ? 1 : 0);
    if (own == 0)
      fail(Exit::usage,
           "parallel.split = [{}] leaves {} {} without units: the first {} also has the embedding and the last one the "
           "head; give every other one a block",
           fmt::join(blocks, ", "), chunks == 1 ? "stage" : "piece", p, chunks == 1 ? "stage" : "piece");
    out.push_back({first, first + own - 1});
    first += own;
  }
  return out;
}

std::vector<std::int64_t> blocks_of_pieces(const models::Model& model, std::span<const UnitRange> pieces) {
  const int before = first_block(model);
  if (pieces.front().last + 1 < before) return {};
  std::vector<std::int64_t> out;
  for (const auto& [first, last] : pieces) out.push_back(last - first + 1);
  out.front() -= before;
  --out.back();  // the head
  return out;
}

std::vector<Segment> within(std::span<const Segment> segments, const StageUnits& stage) {
  std::vector<Segment> out;
  for (const UnitRange& range : stage.ranges)
    for (const Segment& segment : segments) {
      const int first = std::max(segment.first, range.first), last = std::min(segment.last, range.last);
      if (first <= last) out.push_back({first, last, segment.recompute});
    }
  return out;
}

namespace {

using Action = StageStep::Action;

// All forwards, or all backwards, of a stage in their order.
std::vector<StageStep> passes(Action action, int stage, const Pipeline& pipeline, int micro_batches) {
  std::vector<StageStep> out;
  for (int group = 0; group < micro_batches; group += pipeline.stages)
    for (int i = 0; i < pipeline.chunks; ++i) {
      const int chunk = action == Action::forward ? i : pipeline.chunks - 1 - i;
      for (int g = group; g < std::min(group + pipeline.stages, micro_batches); ++g)
        out.push_back({action, g, chunk * pipeline.stages + stage});
    }
  return out;
}

// The number of forwards that a stage starts before its first backward.
std::size_t forwards_ahead(int stage, const Pipeline& pipeline, std::size_t all) {
  if (pipeline.schedule == Schedule::all_forward_all_backward) return all;
  const int follow = pipeline.stages - 1 - stage;
  const int ahead = pipeline.chunks == 1 ? follow : 2 * follow + (pipeline.chunks - 1) * pipeline.stages;
  return std::min(all, static_cast<std::size_t>(ahead));
}

std::vector<StageStep> passes_of_stage(int stage, const Pipeline& pipeline, int micro_batches) {
  const auto forwards = passes(Action::forward, stage, pipeline, micro_batches);
  const auto backwards = passes(Action::backward, stage, pipeline, micro_batches);
  const std::size_t ahead = forwards_ahead(stage, pipeline, forwards.size());
  std::vector<StageStep> out(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (ahead + i < forwards.size()) out.push_back(forwards[ahead + i]);
    out.push_back(backwards[i]);
  }
  return out;
}

// When each pass through each piece would end if messages took no time. `forward`: the time of each piece.
class PassTimes {
 public:
  PassTimes(const Pipeline& pipeline, int micro_batches, std::span<const double> forward, double backward_of_forward)
      : micro_batches_(micro_batches), ends_(index(pipeline.pieces()) * 2 * index(micro_batches)) {
    std::vector<std::vector<StageStep>> all;
    for (int s = 0; s < pipeline.stages; ++s) all.push_back(passes_of_stage(s, pipeline, micro_batches));
    std::vector<std::size_t> next(index(pipeline.stages));
    std::vector<double> free(index(pipeline.stages));
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < pipeline.stages; ++s)
        for (; next[index(s)] < all[index(s)].size(); ++next[index(s)]) {
          const auto [action, g, piece] = all[index(s)][next[index(s)]];
          double ready = 1;  // 0: something that it needs has no time yet
          if (action == Action::forward && piece > 0) ready = end(piece - 1, action, g);
          if (action == Action::backward)
            ready = piece + 1 < pipeline.pieces() ? end(piece + 1, action, g) : end(piece, Action::forward, g);
          if (ready == 0) break;
          const double takes = forward[index(piece)] * (action == Action::backward ? backward_of_forward : 1);
          end(piece, action, g) = free[index(s)] = std::max(ready, free[index(s)]) + takes;
          moved = true;
        }
    }
    for (int s = 0; s < pipeline.stages; ++s) STRATA_CHECK_EQ(next[index(s)], all[index(s)].size());
  }
  double end(int piece, Action pass, int micro_batch) const { return ends_[place(piece, pass, micro_batch)]; }
  double last() const { return *std::ranges::max_element(ends_); }

 private:
  std::size_t place(int piece, Action pass, int g) const {
    return (2 * index(piece) + (pass == Action::forward ? 0 : 1)) * index(micro_batches_) + index(g);
  }
  double& end(int piece, Action pass, int g) { return ends_[place(piece, pass, g)]; }

  int micro_batches_;
  std::vector<double> ends_;
};

// The sum of each chunk's slowest piece: the time of a round of micro-batches if the stages stay in step.
double round_time(std::span<const UnitRange> pieces, int stages, const PieceTime& time) {
  double sum = 0;
  for (std::size_t chunk = 0; chunk < pieces.size(); chunk += index(stages))
    sum += slowest_stage(pieces.subspan(chunk, index(stages)), stages, time);
  return sum;
}

}  // namespace

double schedule_time(std::span<const UnitRange> pieces, int stages, const PieceTime& time) {
  constexpr int kRounds = 4;
  std::vector<double> forward;
  for (const UnitRange& piece : pieces) forward.push_back(time(piece));
  const Pipeline pipeline{stages, static_cast<int>(pieces.size()) / stages, Schedule::one_forward_one_backward};
  return PassTimes(pipeline, kRounds * stages, forward, 2).last();
}

std::vector<UnitRange> fastest_split(int units, int stages, int chunks, const PieceTime& time,
                                     const MayHave& may_have) {
  std::vector<UnitRange> first = with_fast_pieces(units, stages * chunks, time, may_have);
  if (chunks == 1 || first.empty()) return first;
  // Which of the two counts depends on how far stages get ahead of each other.
  const SplitCost costs[] = {[&](const auto& split) {
                               return std::pair{slowest_stage(split, stages, time),
                                                slowest_stage(split, static_cast<int>(split.size()), time)};
                             },
                             [&](const auto& split) {
                               return std::pair{round_time(split, stages, time), slowest_stage(split, stages, time)};
                             }};
  std::vector<UnitRange> fastest;
  for (const SplitCost& cost : costs) {
    std::vector<UnitRange> split = first;
    balance_stages(split, cost, may_have);
    if (fastest.empty() || schedule_time(split, stages, time) < schedule_time(fastest, stages, time))
      fastest = std::move(split);
  }
  return fastest;
}

std::vector<StageStep> steps_of_stage(int stage, const Pipeline& pipeline, int micro_batches) {
  const std::vector<double> equal_times(index(pipeline.pieces()), 1.0);
  const PassTimes times(pipeline, micro_batches, equal_times, 1);
  // A message is sent when its pass ends, before any pass that begins then. The sender determines its place among
  // messages of the same time, so that both ends agree.
  struct Placed {
    std::tuple<double, bool, int, bool> place;
    StageStep step;
  };
  std::vector<Placed> all;
  const auto add = [&](Action action, int g, int piece, int sender, Action pass) {
    const bool backward = pass == Action::backward;
    all.push_back({{times.end(sender, pass, g), false, sender % pipeline.stages, backward}, {action, g, piece}});
  };
  for (const StageStep& pass : passes_of_stage(stage, pipeline, micro_batches))
    all.push_back({{times.end(pass.piece, pass.action, pass.micro_batch) - 1, true, 0, false}, pass});
  for (int g = 0; g < micro_batches; ++g)
    for (int piece = stage; piece < pipeline.pieces(); piece += pipeline.stages) {
      if (piece > 0) {
        add(Action::receive_input, g, piece, piece - 1, Action::forward);
        add(Action::send_gradient, g, piece, piece, Action::backward);
      }
      if (piece + 1 < pipeline.pieces()) {
        add(Action::send_output, g, piece, piece, Action::forward);
        add(Action::receive_gradient, g, piece, piece + 1, Action::backward);
      }
    }
  std::ranges::sort(all, {}, &Placed::place);
  std::vector<StageStep> steps;
  for (const Placed& one : all) steps.push_back(one.step);
  return steps;
}

namespace {

std::vector<Segment> all_segments(const Recompute& recompute, const models::Model& model) {
  int begin = 0, end = 0;
  for (const auto& unit : model.units) {
    if (!unit->ports().input) ++begin;
    if (!unit->as_loss()) ++end;
  }
  const int n = end - begin;
  std::vector<Segment> segments;
  if (recompute.kind == Recompute::Kind::sqrt) {
    const int length = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(n))));
    for (int first = begin; first < end; first += length)
      segments.push_back({first, std::min(end - 1, first + length - 1), true});
    return segments;
  }
  for (int unit = begin; unit < end; ++unit) segments.push_back({unit, unit, recompute.kind == Recompute::Kind::block});
  // The list counts only blocks, not other units.
  const int before = std::max(begin, first_block(model)) - begin;
  if (recompute.kind == Recompute::Kind::list)
    for (const std::int64_t block : recompute.blocks) {
      if (block < 0 || block >= n - before)
        fail(Exit::usage, "training.recompute names block {}, but the model has blocks 0 to {}", block, n - before - 1);
      segments[static_cast<std::size_t>(before + block)].recompute = true;
    }
  return segments;
}

}  // namespace

std::vector<Segment> segments_of(const Recompute& recompute, const models::Model& model) {
  std::vector<Segment> segments = all_segments(recompute, model);
  const int lowest = static_cast<int>(model.lowest_trained());
  std::erase_if(segments, [&](const Segment& segment) { return segment.last < lowest; });
  if (!segments.empty()) segments.front().first = std::max(segments.front().first, lowest);
  return segments;
}

}  // namespace strata::runtime
