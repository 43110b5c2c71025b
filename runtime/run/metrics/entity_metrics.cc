#include "runtime/run/metrics/entity_metrics.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace strata::runtime {

EntityTags::EntityTags(std::span<const std::string> names) {
  std::vector<std::string_view> types;
  for (const std::string& name : names) {
    const bool inside = name != "O";
    const std::string_view type = inside ? std::string_view(name).substr(2) : std::string_view();
    auto found = std::ranges::find(types, type);
    if (found == types.end()) found = types.insert(types.end(), type);
    tags_.push_back({inside, name.starts_with('B'), static_cast<std::size_t>(found - types.begin())});
  }
}

std::vector<Entity> EntityTags::entities(std::span<const std::size_t> words) const {
  std::vector<Entity> out;
  bool open = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Tag& tag = tags_[words[i]];
    const bool continues = open && tag.inside && !tag.begins && tag.type == out.back().type;
    if (tag.inside && !continues) out.push_back({i, i, tag.type});
    open = tag.inside;
    if (open) out.back().end = i + 1;
  }
  return out;
}

void EntityTally::add(std::span<const std::size_t> labels, std::span<const std::size_t> said) {
  STRATA_CHECK_EQ(labels.size(), said.size());
  const std::vector<Entity> there = tags_.entities(labels), claimed = tags_.entities(said);
  counts_.there += there.size();
  counts_.said += claimed.size();
  // Both lists are ordered by beginnings, and no two beginnings in a list are equal.
  for (std::size_t i = 0, j = 0; i < there.size() && j < claimed.size();) {
    counts_.found += there[i] == claimed[j] ? 1 : 0;
    const std::size_t a = there[i].begin, b = claimed[j].begin;
    i += a <= b ? 1 : 0;
    j += b <= a ? 1 : 0;
  }
}

ClassQuality EntityTally::Counts::quality() const {
  const auto ratio = [](std::uint64_t a, std::uint64_t b) {
    return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0.0;
  };
  return {ratio(found, said), ratio(found, there), ratio(2 * found, said + there), there};
}

}  // namespace strata::runtime
