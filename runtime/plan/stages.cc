#include "runtime/plan/stages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/counted.h"
#include "base/error.h"

namespace strata::runtime {
namespace {

double cost_of(const models::Unit& unit) {
  double flops = 0;
  for (const models::Pass pass : {models::Pass::forward, models::Pass::backward}) {
    const models::Work work = unit.work(pass, unit.all_parts());
    flops += work.flops + work.attention_flops;
  }
  return flops;
}

// Cuts the units so that the largest sum of costs is as small as possible, and the last stages are not emptier than
// they need be: of equal cuts, the earliest.
std::vector<UnitRange> balanced(const std::vector<double>& costs, int stages) {
  const auto units = static_cast<int>(costs.size());
  std::vector<double> before(costs.size() + 1);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  const auto between = [&](int first, int end) {
    return before[static_cast<std::size_t>(end)] - before[static_cast<std::size_t>(first)];
  };
  // slowest[s][n]: of the first n units in s + 1 stages; cut[s][n]: where the last of these stages begins.
  const auto size = static_cast<std::size_t>(units) + 1;
  std::vector<std::vector<double>> slowest(static_cast<std::size_t>(stages),
                                           std::vector<double>(size, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<int>> cut(static_cast<std::size_t>(stages), std::vector<int>(size));
  for (int n = 1; n <= units; ++n) slowest[0][static_cast<std::size_t>(n)] = between(0, n);
  for (std::size_t s = 1; s < slowest.size(); ++s)
    for (int n = static_cast<int>(s) + 1; n <= units; ++n)
      for (int first = static_cast<int>(s); first < n; ++first) {
        const double time = std::max(slowest[s - 1][static_cast<std::size_t>(first)], between(first, n));
        if (time >= slowest[s][static_cast<std::size_t>(n)]) continue;
        slowest[s][static_cast<std::size_t>(n)] = time;
        cut[s][static_cast<std::size_t>(n)] = first;
      }
  std::vector<UnitRange> out(static_cast<std::size_t>(stages));
  for (int s = stages - 1, end = units; s >= 0; --s) {
    const int first = cut[static_cast<std::size_t>(s)][static_cast<std::size_t>(end)];
    out[static_cast<std::size_t>(s)] = {first, end - 1};
    end = first;
  }
  return out;
}

}  // namespace

std::vector<UnitRange> split_into_stages(const models::Model& model, int stages, std::span<const std::int64_t> blocks) {
  const auto units = static_cast<int>(model.units.size());
  if (stages > units)
    fail(Exit::usage,
         "parallel.stages = {}, and this model has {} units (embedding, {} blocks, head): set at most {} stages",
         stages, units, units - 2, units);
  if (blocks.empty()) {
    std::vector<double> costs;
    for (const auto& unit : model.units) costs.push_back(cost_of(*unit));
    return balanced(costs, stages);
  }
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

std::vector<StagePass> passes_of_stage(int stage, int stages, int micro_batches, bool all_forward_first) {
  const int ahead = all_forward_first ? micro_batches : std::min(micro_batches, stages - 1 - stage);
  std::vector<StagePass> out;
  for (int g = 0; g < ahead; ++g) out.push_back({true, g});
  for (int g = 0; g < micro_batches; ++g) {
    if (ahead + g < micro_batches) out.push_back({true, ahead + g});
    out.push_back({false, g});
  }
  return out;
}

}  // namespace strata::runtime
