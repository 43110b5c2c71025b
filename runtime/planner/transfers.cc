#include "runtime/planner/transfers.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "runtime/tasks/copy.h"

namespace strata::runtime {

void hop(Draft& draft, std::vector<Slice>& slices, Tier from, Tier to, int unit, std::string_view what, Kind kind) {
  Copy copy{unit, {}};
  for (Slice& s : slices) {
    if (draft.tier_of(s.buffer) != from) continue;
    const std::string name = fmt::format("{} in {}", what, kTierNames[static_cast<std::size_t>(to)]);
    const Slice target{draft.add_buffer(name, kind, to, s.bytes, false), 0, s.bytes};
    copy.pairs.push_back({s, target});
    s = target;
  }
  if (!copy.pairs.empty()) copy.add(draft);
}

std::vector<Slice> bring(Draft& draft, std::vector<Slice> slices, Tier to, int unit, std::string_view what, Kind kind) {
  STRATA_CHECK(to != Tier::nvme);
  hop(draft, slices, Tier::nvme, Tier::host, unit, what, to == Tier::host ? kind : Kind::staging);
  if (to == Tier::device)
    hop(draft, slices, Tier::host, Tier::device, unit, what, kind);
  else
    hop(draft, slices, Tier::device, Tier::host, unit, what, kind);
  return slices;
}

void put(Draft& draft, std::vector<Slice> from, std::vector<Slice> homes, int unit, std::string_view what) {
  // A slice with two hops (device to NVMe) goes to the host in the same task as those that end there.
  for (const auto& [source, target] : {std::pair{Tier::nvme, Tier::host}, std::pair{Tier::device, Tier::host},
                                       std::pair{Tier::host, Tier::device}, std::pair{Tier::host, Tier::nvme}}) {
    Copy copy{unit, {}};
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i].buffer == homes[i].buffer || draft.tier_of(from[i].buffer) != source) continue;
      const Tier home = draft.tier_of(homes[i].buffer);
      const bool passes = source == Tier::device && home == Tier::nvme;
      if (home != target && !passes) continue;
      Slice to = homes[i];
      if (passes) {
        const std::string name = fmt::format("{} in host", what);
        to = {draft.add_buffer(name, Kind::staging, Tier::host, from[i].bytes, false), 0, from[i].bytes};
      }
      copy.pairs.push_back({from[i], to});
      from[i] = to;
    }
    if (!copy.pairs.empty()) copy.add(draft);
  }
  for (std::size_t i = 0; i < from.size(); ++i) STRATA_CHECK_EQ(from[i].buffer, homes[i].buffer);
}

}  // namespace strata::runtime
