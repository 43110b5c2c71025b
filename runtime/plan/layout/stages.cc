#include "runtime/plan/layout/stages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/counted.h"
#include "base/error.h"

namespace strata::runtime {
void require_units(const models::Model& model, int stages) {
  const auto units = static_cast<int>(model.units.size());
  if (stages > units)
    fail(Exit::usage,
         "parallel.stages = {}, and this model has {} units (embedding, {} blocks, head): set at most {} stages",
         stages, units, units - 2, units);
}

std::vector<UnitRange> fastest_split(int units, int stages, const StageTime& time, const MayHave& may_have) {
  STRATA_CHECK_LE(stages, units);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // slowest[s][n]: of the first n units in s + 1 stages; cut[s][n]: where the last of these stages begins.
  const auto size = static_cast<std::size_t>(units) + 1;
  std::vector<std::vector<double>> slowest(static_cast<std::size_t>(stages), std::vector<double>(size, kNever));
  std::vector<std::vector<int>> cut(static_cast<std::size_t>(stages), std::vector<int>(size));
  for (int s = 0; s < stages; ++s) {
    const auto at = static_cast<std::size_t>(s);
    for (int n = s + 1; n <= units - (stages - 1 - s); ++n)
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
  std::vector<UnitRange> out(static_cast<std::size_t>(stages));
  for (int s = stages - 1, end = units; s >= 0; --s) {
    const int first = cut[static_cast<std::size_t>(s)][static_cast<std::size_t>(end)];
    out[static_cast<std::size_t>(s)] = {first, end - 1};
    end = first;
  }
  return out;
}

double slowest_stage(std::span<const UnitRange> stages, const StageTime& time) {
  double most = 0;
  for (const UnitRange& stage : stages) most = std::max(most, time(stage));
  return most;
}

std::vector<UnitRange> split_into_stages(const models::Model& model, int stages, std::span<const std::int64_t> blocks) {
  require_units(model, stages);
  const auto units = static_cast<int>(model.units.size());
  const std::int64_t sum = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  if (static_cast<int>(blocks.size()) != stages || sum != units - 2)
    fail(Exit::usage,
         "parallel.split = [{}] has {} for {} and {} blocks for the model's {}: give {} numbers with the sum {}, or "
         "\"auto\"",
         fmt::join(blocks, ", "), counted(blocks.size(), "number"),
         counted(static_cast<std::uint64_t>(stages), "stage"), sum, units - 2, stages, units - 2);
  std::vector<UnitRange> out;
  int first = 0;
  for (int s = 0; s < stages; ++s) {
    const int own =
        static_cast<int>(blocks[static_cast<std::size_t>(s)]) + (s == 0 ? 1 : 0) + (s + 1 == stages ? 1 : 0);
    if (own == 0)
      fail(Exit::usage,
           "parallel.split = [{}] leaves stage {} without units: the first stage also has the embedding and the last "
           "one "
           "the head; give every other stage a block",
           fmt::join(blocks, ", "), s);
    out.push_back({first, first + own - 1});
    first += own;
  }
  return out;
}

std::vector<Segment> within(std::vector<Segment> segments, const UnitRange& stage) {
  for (Segment& segment : segments) {
    segment.first = std::max(segment.first, stage.first);
    segment.last = std::min(segment.last, stage.last);
  }
  std::erase_if(segments, [](const Segment& segment) { return segment.first > segment.last; });
  return segments;
}

namespace {

using What = StageStep::What;

std::vector<StageStep> passes_of_stage(int stage, int stages, int micro_batches, bool all_forward_first) {
  const int ahead = all_forward_first ? micro_batches : std::min(micro_batches, stages - 1 - stage);
  std::vector<StageStep> out;
  for (int g = 0; g < ahead; ++g) out.push_back({What::forward, g});
  for (int g = 0; g < micro_batches; ++g) {
    if (ahead + g < micro_batches) out.push_back({What::forward, ahead + g});
    out.push_back({What::backward, g});
  }
  return out;
}

// When each pass of each stage would end if all took one unit of time and messages none.
class UnitTimes {
 public:
  UnitTimes(int stages, int micro_batches, bool all_forward_first)
      : micro_batches_(micro_batches), ends_(at(stages) * 2 * at(micro_batches)) {
    std::vector<std::vector<StageStep>> passes;
    for (int s = 0; s < stages; ++s) passes.push_back(passes_of_stage(s, stages, micro_batches, all_forward_first));
    std::vector<std::size_t> next(at(stages));
    std::vector<int> free(at(stages));
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < stages; ++s)
        for (; next[at(s)] < passes[at(s)].size(); ++next[at(s)]) {
          const auto [what, g] = passes[at(s)][next[at(s)]];
          int ready = 1;  // 0: what it needs has no time yet
          if (what == What::forward && s > 0) ready = end(s - 1, what, g);
          if (what == What::backward) ready = s + 1 < stages ? end(s + 1, what, g) : end(s, What::forward, g);
          if (ready == 0) break;
          end(s, what, g) = free[at(s)] = std::max(ready, free[at(s)]) + 1;
          moved = true;
        }
    }
  }
  int end(int stage, What pass, int micro_batch) const {
    return ends_[(2 * at(stage) + (pass == What::forward ? 0 : 1)) * at(micro_batches_) + at(micro_batch)];
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int& end(int stage, What pass, int g) {
    return ends_[(2 * at(stage) + (pass == What::forward ? 0 : 1)) * at(micro_batches_) + at(g)];
  }

  int micro_batches_;
  std::vector<int> ends_;
};

}  // namespace

std::vector<StageStep> steps_of_stage(int stage, int stages, int micro_batches, bool all_forward_first) {
  const UnitTimes times(stages, micro_batches, all_forward_first);
  // A message is sent when its pass ends, before any pass that begins then. Its place among those of the same time is
  // given by its sender, so that both ends agree on it.
  struct Placed {
    std::tuple<int, bool, int, bool> place;
    StageStep step;
  };
  std::vector<Placed> all;
  const auto add = [&](What what, int g, int sender, What pass) {
    all.push_back({{times.end(sender, pass, g), false, sender, pass == What::backward}, {what, g}});
  };
  for (const StageStep& pass : passes_of_stage(stage, stages, micro_batches, all_forward_first))
    all.push_back({{times.end(stage, pass.what, pass.micro_batch) - 1, true, 0, false}, pass});
  for (int g = 0; g < micro_batches; ++g) {
    if (stage > 0) {
      add(What::receive_input, g, stage - 1, What::forward);
      add(What::send_gradient, g, stage, What::backward);
    }
    if (stage + 1 < stages) {
      add(What::send_output, g, stage, What::forward);
      add(What::receive_gradient, g, stage + 1, What::backward);
    }
  }
  std::ranges::sort(all, {}, &Placed::place);
  std::vector<StageStep> steps;
  for (const Placed& one : all) steps.push_back(one.step);
  return steps;
}

}  // namespace strata::runtime
