#include "runtime/plan/layout.h"

#include <algorithm>

#include "base/error.h"

namespace strata::runtime {
namespace {

using device::MomentFormat;

MomentFormat format_of(const models::Parameter& parameter, std::size_t unit, MomentFormat wanted) {
  constexpr std::size_t kSmall = 4096;
  const bool stays = unit == 0 || parameter.shape.size() < 2 || parameter.size() < kSmall;
  return wanted == MomentFormat::block8 && stays ? MomentFormat::fp32 : wanted;
}

}  // namespace

Layout make_layout(const models::Model& model, int ranks, MomentFormat moments) {
  Layout layout{ranks, {}, model.tied_size};
  const auto w = static_cast<std::size_t>(ranks);
  for (const auto& unit : model.units) {
    const std::size_t number = layout.units.size();
    UnitLayout& u = layout.units.emplace_back();
    u.size = unit->size();
    // The tied range is rounded up to whole blocks and must lie inside.
    const std::size_t used = number == 0 ? std::max(u.size, model.tied_size) : u.size;
    u.shard = (used + w * kShardAlignment - 1) / (w * kShardAlignment) * kShardAlignment;
    u.padded = u.shard * w;
    u.moments = moments;
    const auto parameters = unit->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const models::Parameter& p = parameters[i];
      u.runs.push_back({p.offset, p.offset + p.size(), i, p.decay, format_of(p, number, moments)});
    }
  }
  return layout;
}

std::size_t UnitLayout::moment_bytes(std::size_t begin, std::size_t end) const {
  constexpr std::size_t kBlock = device::kMomentBlock;
  STRATA_CHECK_EQ(begin % kBlock, 0u);
  std::size_t bytes = 0, at = begin;
  const auto take = [&](std::size_t to, MomentFormat format) {
    if (to <= at) return;
    bytes += device::moment_bytes(format, to - at);
    at = to;
  };
  for (const Run& run : runs) {
    take(std::min(run.begin, end), moments);
    take(std::min((run.end + kBlock - 1) / kBlock * kBlock, end), run.moments);
  }
  take(end, moments);
  return bytes;
}

}  // namespace strata::runtime
