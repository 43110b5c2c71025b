#include "runtime/layout.h"

namespace strata::runtime {

Layout make_layout(const models::Model& model, int ranks) {
  Layout layout{ranks, {}, model.tied_size};
  const auto w = static_cast<std::size_t>(ranks);
  for (const auto& unit : model.units) {
    UnitLayout& u = layout.units.emplace_back();
    u.size = unit->size();
    // The tied range is rounded up to whole blocks and must lie inside.
    const std::size_t used = layout.units.size() == 1 ? std::max(u.size, model.tied_size) : u.size;
    u.shard = (used + w * kShardAlignment - 1) / (w * kShardAlignment) * kShardAlignment;
    u.padded = u.shard * w;
    const auto parameters = unit->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      u.runs.push_back({parameters[i].offset, parameters[i].offset + parameters[i].size(), i, parameters[i].decay});
  }
  return layout;
}

}  // namespace strata::runtime
