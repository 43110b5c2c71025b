#include "runtime/planner/kept_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/index.h"
#include "runtime/planner/transfers.h"

namespace strata::runtime {
KeptInputs::KeptInputs(Draft& draft)
    : d_(draft), homes_(index(draft.units()) * index(draft.request.accumulation), -1) {}

bool KeptInputs::has(int unit) const {
  if (d_.plan.placement.activations == Tier::device) return false;
  return std::ranges::any_of(d_.request.segments, [&](const Segment& s) { return s.recompute && s.first == unit; });
}

int& KeptInputs::home_of(int unit, int micro_batch) {
  return homes_[index(micro_batch * d_.units() + unit)];
}

void KeptInputs::find_returns(const std::vector<Visit>& visits) {
  returns_before_.resize(visits.size());
  std::vector<int> forward(homes_.size(), -1);
  std::vector<bool> returned(homes_.size());
  for (int v = 0; v < static_cast<int>(visits.size()); ++v)
    for (const Call& call : visits[index(v)].calls) {
      if (!has(call.unit)) continue;
      const std::size_t i = index(call.micro_batch * d_.units() + call.unit);
      if (call.kind == TaskKind::forward) forward[i] = v;
      if (call.kind != TaskKind::recompute || returned[i]) continue;
      returned[i] = true;
      returns_before_[index(std::max(forward[i] + 1, v - 1))].push_back({call.unit, call.micro_batch});
    }
}

void KeptInputs::put_away(int unit, int micro_batch, int x) {
  const std::string what = fmt::format("input of {}", d_.unit(unit).name());
  const int home = d_.add_buffer(what, Kind::activations, d_.plan.placement.activations,
                                 d_.bytes_of(d_.plan.rows * d_.model.hidden), false);
  home_of(unit, micro_batch) = home;
  put(d_, {d_.whole(x)}, {d_.whole(home)}, unit, what);
}

int KeptInputs::bring_back(int unit, int micro_batch) {
  return bring(d_, {d_.whole(home_of(unit, micro_batch))}, Tier::device, unit,
               fmt::format("input of {}", d_.unit(unit).name()), Kind::activations)[0]
      .buffer;
}

}  // namespace strata::runtime
