#include "runtime/plan/layout/segments.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace strata::runtime {

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
  if (recompute.kind == Recompute::Kind::list)
    for (const std::int64_t block : recompute.blocks) {
      if (block < 0 || block >= n)
        fail(Exit::usage, "training.recompute names block {}, but the model has blocks 0 to {}", block, n - 1);
      segments[static_cast<std::size_t>(block)].recompute = true;
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
